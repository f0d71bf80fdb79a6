"""The scripts' set-up on a machine where nothing of ours is installed yet.

Input: scripts/lib.sh in a copy with a project that needs no packages.  Output: what the set-up
leaves on the PATH, from an empty home, an empty environment and a PATH on which uv does not work.
Not here: what the scripts do afterwards.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LIB = Path(__file__).parents[2] / "scripts" / "lib.sh"
PROJECT = '[project]\nname = "tiny"\nversion = "0"\nrequires-python = ">=3.11"\n'
LOCK = """version = 1
requires-python = ">=3.11"

[[package]]
name = "tiny"
version = "0"
source = { virtual = "." }
"""
# How a machine reaches its package index belongs to the machine, not to a person's home.
INDEX = re.compile(
    r"PIP_|UV_(INDEX|DEFAULT_INDEX|NATIVE)|SSL_|REQUESTS_CA|CURL_CA|\w+_proxy$", re.I
)
UNREACHABLE = ("No matching distribution found for uv", "due to an OSError")


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """A checkout, a home and programs: uv is one that does not start, as a version manager's is."""
    for name, text in {"pyproject.toml": PROJECT, "uv.lock": LOCK}.items():
        (tmp_path / "checkout" / "scripts").mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkout" / name).write_text(text)
    shutil.copy(LIB, tmp_path / "checkout" / "scripts")
    (tmp_path / "home").mkdir()
    settings = Path(".config/pip/pip.conf")
    if (Path.home() / settings).exists():
        (tmp_path / "home" / settings).parent.mkdir(parents=True)
        shutil.copy(Path.home() / settings, tmp_path / "home" / settings)
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    for name, line in {"uv": "exit 127", "python3": f'exec "{base}" "$@"'}.items():
        (tmp_path / "programs").mkdir(exist_ok=True)
        (tmp_path / "programs" / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / "programs" / name).chmod(0o755)
    return tmp_path


def set_up(fresh: Path) -> list[str]:
    """Where `python` and `uv` come from after the set-up."""
    command = (
        "set -euo pipefail; source scripts/lib.sh; need_python; "
        'python -c "import sys; print(sys.prefix)"; command -v uv; uv --version'
    )
    environment = {k: v for k, v in os.environ.items() if INDEX.match(k)} | {
        "HOME": str(fresh / "home"),
        "PATH": f"{fresh / 'programs'}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
    }
    done = subprocess.run(
        ["/bin/bash", "-c", command],
        cwd=fresh / "checkout", env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if any(words in done.stderr for words in UNREACHABLE):
        pytest.skip(f"The package index does not give uv: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.nightly
def test_the_project_has_its_own_python_where_uv_is_missing(fresh: Path) -> None:
    checkout = fresh / "checkout"
    for _ in ("the first start", "the second"):
        prefix, uv, version = set_up(fresh)
        assert prefix == str(checkout / ".venv")
        assert uv == str(checkout / ".tools" / "bin" / "uv")
        assert version.startswith("uv ")
