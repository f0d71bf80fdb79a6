"""Answers to the questions of trials, and which sources answered a gold question right."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("reports", sa.Column("answers", sa.JSON, nullable=False, server_default="[]"))
    op.add_column(
        "reports", sa.Column("proven", sa.Boolean, nullable=False, server_default=sa.false())
    )


def downgrade() -> None:
    with op.batch_alter_table("reports") as reports:
        reports.drop_column("proven")
        reports.drop_column("answers")
