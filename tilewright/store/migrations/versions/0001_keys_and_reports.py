"""Keys with their standing, and reports."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "keys",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("kernel", sa.String(200), nullable=False),
        sa.Column("kind", sa.String(200), nullable=False),
        sa.Column("shape", sa.String(200), nullable=False),
        sa.Column("device", sa.String(200), nullable=False),
        sa.Column("space", sa.String(200), nullable=False),
        sa.Column("compiler", sa.String(200), nullable=False),
        sa.Column("browser", sa.String(200), nullable=False),
        sa.Column("day", sa.Integer, nullable=False),
        sa.Column("fresh", sa.Integer, nullable=False),
        sa.Column("voices", sa.Integer, nullable=False),
        sa.Column("default_candidate", sa.Integer),
        sa.Column("default_since", Number),
        sa.Column("shadow_candidate", sa.Integer),
        sa.Column("shadow_since", Number),
        sa.Column("previous_candidate", sa.Integer),
        sa.Column("ranked", sa.JSON, nullable=False),
        sa.UniqueConstraint("kernel", "device", "space", "compiler", "browser", name="keys_unique"),
    )
    op.create_table(
        "reports",
        sa.Column("id", Number, primary_key=True),
        sa.Column("nonce", sa.String(64), nullable=False),
        sa.Column(
            "key_id", sa.Integer, sa.ForeignKey("keys.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("day", sa.Integer, nullable=False),
        sa.Column("source", sa.String(200)),
        sa.Column("counts", sa.Boolean, nullable=False),
        sa.Column("top", sa.JSON, nullable=False),
        sa.UniqueConstraint("nonce", name="reports_nonce"),
        sa.UniqueConstraint("key_id", "day", "source", name="reports_voice"),
        sqlite_autoincrement=True,
    )
    op.create_index("reports_day_source", "reports", ["day", "source"])


def downgrade() -> None:
    op.drop_table("reports")
    op.drop_table("keys")
