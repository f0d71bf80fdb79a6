"""What scripts/lib.sh installs into a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

LIB = Path(__file__).parents[2] / "scripts" / "lib.sh"
#: As `npm ci` does: all that is in the folder goes.
NPM = """#!/bin/sh
mkdir -p node_modules
rm -rf node_modules/*
touch node_modules/ours node_modules/.package-lock.json
"""


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_packages_of_another_checkout_stay(tmp_path: Path) -> None:
    """A link to them is replaced, if they are not those that this checkout wants."""
    other, checkout = tmp_path / "other", tmp_path / "checkout"
    for folder in (other, checkout / "scripts", tmp_path / "bin"):
        folder.mkdir(parents=True)
    (other / "theirs").touch()
    (checkout / "node_modules").symlink_to(other)
    (checkout / "package-lock.json").touch()
    shutil.copy(LIB, checkout / "scripts")
    program(tmp_path / "bin" / "npm", NPM)
    program(tmp_path / "bin" / "node", "#!/bin/sh\n")
    command = ["bash", "-euc", f"source {checkout / 'scripts' / 'lib.sh'}; need_node"]
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    subprocess.run(command, env=environment, check=True)
    assert [p.name for p in other.iterdir()] == ["theirs"]
    assert (checkout / "node_modules" / "ours").exists()
    # one that has all stays
    shutil.rmtree(checkout / "node_modules")
    (other / ".package-lock.json").touch()
    (checkout / "node_modules").symlink_to(other)
    subprocess.run(command, env=environment, check=True)
    assert sorted(p.name for p in other.iterdir()) == [".package-lock.json", "theirs"]
