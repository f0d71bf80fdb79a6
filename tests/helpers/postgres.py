"""A real PostgreSQL of our own: a cluster in a temporary folder, on a socket in that folder.

Input: nothing.  Output: `Cluster`, which starts, dies by SIGKILL and starts again on demand, and
gives empty databases.  Nothing of a system-wide installation is touched but its programs.  Its
client is imported when it is needed: machines for tests of GPUs have none.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

#: Where Debian keeps the programs of each version, which it does not put on the path.
DEBIAN = Path("/usr/lib/postgresql")
START_SECONDS = 300


def programs() -> Path | None:
    """The folder with `initdb` and `postgres`, or None."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    if DEBIAN.is_dir():
        versions = sorted(DEBIAN.iterdir(), key=lambda p: -int(p.name) if p.name.isdigit() else 0)
        folders += [p / "bin" for p in versions]
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    return None


def needed() -> Path:
    """That folder; without it the test is skipped, but fails in CI, which shall test all."""
    found = programs()
    if found is not None:
        return found
    missing = f"PostgreSQL is not installed: no initdb on the path or in {DEBIAN}"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{missing}; install it, on Debian with `apt-get install postgresql`")
    pytest.skip(missing)


class Cluster:
    """A server with its data; `with Cluster(programs()) as cluster: cluster.database()`."""

    def __init__(self, folder: Path) -> None:
        self._programs = folder
        self._root = Path(tempfile.mkdtemp(prefix="tw-pg-"))
        self._data = self._root / "data"
        self._numbers = itertools.count()
        self._server: subprocess.Popen[bytes] | None = None
        # PostgreSQL refuses to run as root.
        self._user = _other_user() if os.geteuid() == 0 else None
        if self._user:
            os.chown(self._root, self._user.pw_uid, self._user.pw_gid)

    def __enter__(self) -> Cluster:
        command = ["--auth=trust", "--username=tilewright", "--encoding=UTF8", "--no-sync"]
        made = self._run("initdb", "-D", str(self._data), "--locale=C", *command)
        output, _ = made.communicate(timeout=START_SECONDS)
        assert made.returncode == 0, output.decode()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill(signal.SIGQUIT)
        shutil.rmtree(self._root, ignore_errors=True)

    def start(self) -> None:
        """Starts the server and waits until it answers; after a kill it repairs itself first."""
        import psycopg

        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if self._server is None or self._server.poll() is not None:
                # The children of a killed server may live a moment longer and hold its memory.
                options = ["-c", "listen_addresses=", "-c", "fsync=off"]
                self._server = self._run(
                    "postgres", "-D", str(self._data), "-k", str(self._root), *options
                )
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self._dsn("postgres"), connect_timeout=2).close()
                return
            time.sleep(0.05)
        raise TimeoutError("PostgreSQL did not start")

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Ends the server by a signal, in the middle of whatever it does."""
        if self._server is not None:
            self._server.send_signal(number)
            self._server.communicate(timeout=START_SECONDS)
            self._server = None

    def database(self) -> str:
        """URL of a new, empty database."""
        name = f"t{next(self._numbers)}"
        import psycopg

        with psycopg.connect(self._dsn("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql+psycopg://tilewright@/{name}?host={self._root}"

    def _dsn(self, name: str) -> str:
        return f"host={self._root} user=tilewright dbname={name}"

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        user = self._user
        return subprocess.Popen(
            [str(self._programs / program), *arguments],
            cwd=self._root,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            **({"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}),  # type: ignore[arg-type]
        )


def _other_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("No user to run PostgreSQL as: make one named postgres")
