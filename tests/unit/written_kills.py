"""Writers of one folder that are killed or overlap: `killed|overlapped FOLDER TIMES`.

A script, not a test: test_written.py starts it, since it forks.  It prints how many writers were
killed, or how many pairs overlapped, and fails with an assertion.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from bundle_factory import sample

from tilewright.base.errors import BundleCorrupt
from tilewright.bundle import Contents, open_bundle, write
from tilewright.bundle.format import POINTER
from tilewright.bundle.owned_files import RECORD
from tilewright.server.static import put

#: Calls of the system at which a writer may be killed, as Python's audit events name them.
EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "fcntl.flock"}
BUNDLES = [sample(1000, name="first"), sample(2000, name="second"), sample(3000, name="third")]
PAGES = [{"index.html": text, f"{text.decode()}.js": text} for text in (b"one", b"two")]


def writer(folder: Path, contents: Contents, number: int, kill_at: int | None) -> int:
    """Starts one that is killed at its call of this number; its process id."""
    child = os.fork()
    if child:
        return child
    calls = 0

    def hook(event: str, _: object) -> None:
        nonlocal calls
        if event in EVENTS:
            calls += 1
            if calls == kill_at:
                os._exit(9)

    try:
        if kill_at is not None:
            sys.addaudithook(hook)
        write(contents, folder)
        put(folder, "page", PAGES[number % len(PAGES)])
        os._exit(0)
    except BaseException as error:
        print(f"writer {number}: {error!r}", file=sys.stderr, flush=True)
        os._exit(1)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def whole(folder: Path) -> None:
    """There is no bundle yet, or one of them."""
    if (folder / POINTER).exists():
        bundle = open_bundle(folder)
        bundle.verify()
        assert bundle.manifest.name in [c.manifest.name for c in BUNDLES]


def killed(folder: Path, times: int) -> int:
    """At each call in turn, over what the one before left; then at random calls."""
    count = number = 0
    dice = random.Random(7)
    kill_at, longest = 1, 0
    while count < times:
        code = ended(writer(folder, BUNDLES[number % 3], number, kill_at))
        assert code in (0, 9), (code, number, kill_at)
        number, count = number + 1, count + (code == 9)
        whole(folder)
        if code == 0:
            longest = longest or kill_at
        kill_at = kill_at + 1 if not longest else dice.randrange(1, longest + 1)
    return count


def overlapped(folder: Path, times: int) -> int:
    for number in range(times):
        pair = [writer(folder, BUNDLES[(number + n) % 3], number + n, None) for n in (0, 1)]
        while True:  # a reader meanwhile: what it has opened can be read to the end
            whole(folder)
            alive = [
                child
                for child in pair
                if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
            ]
            if not alive:
                break
        assert [ended(child) for child in pair] == [0, 0]
    return times


def main(kind: str, folder: Path, times: int) -> None:
    count = (killed if kind == "killed" else overlapped)(folder, times)
    assert ended(writer(folder, BUNDLES[0], 0, None)) == 0
    assert open_bundle(folder).manifest.name == "first"
    assert (folder / RECORD).exists()
    try:
        open_bundle(folder).verify()
    except BundleCorrupt as error:
        raise AssertionError("the last one is damaged") from error
    print(count)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
