"""What a page needs to run the compiler itself: Pyodide's core and the compiler's source.

Input: nothing, or the folder of the npm package `pyodide`.  Output: that folder, checked, and the
routes below /compiler/ that serve both.  Nothing is downloaded here, and pages load nothing from
other servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tilewright.base.errors import HostError
from tilewright.bundle.format import digest
from tilewright.server.file_responses import Folder
from tilewright.server.headers import REVALIDATE
from tilewright.tuning.source_zip import source_zip

#: The version in package.json, which is the tested one.
VERSION = "314.0.7"
#: The core, and the files that state its origin.
FILES = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
    "package.json",
    "README.md",
)
SOURCE = "source.zip"

_PACKAGE = Path("node_modules", "pyodide")


def core(given: Path | None = None) -> Path:
    """The folder of Pyodide's core: `given`, or one that is found.  Raises HostError."""
    folders = list(_places()) if given is None else [given]
    for folder in folders:
        missing = [name for name in FILES if not (folder / name).is_file()]
        if not missing:
            return folder
        if given is not None:
            raise HostError(
                f"{folder} is not the folder of Pyodide's core: it lacks {', '.join(missing)}",
                hint=_HINT,
                path=str(folder),
            )
    raise HostError("Pyodide is not installed", hint=_HINT, looked=[str(f) for f in folders])


def compiler_routes(folder: Path) -> list[Route]:
    """`/compiler/…`: the source as it is at this call, and the files of the core."""
    archive = source_zip()
    headers = {"etag": f'"{digest(archive)}"', "cache-control": REVALIDATE}

    def source(_request: Request) -> Response:
        return Response(archive, media_type="application/zip", headers=headers)

    return [
        Route(f"/compiler/{SOURCE}", source),
        Route("/compiler/{path:path}", Folder(folder).file),
    ]


_HINT = f"Run `npm install pyodide@{VERSION}`, or name the folder that has it with --pyodide"


def _places() -> Iterator[Path]:
    """Folders that may contain Pyodide: as Node searches, in the current folder and its parents;
    then beside this package."""
    here, own = Path.cwd(), Path(__file__).parents[2]
    for folder in dict.fromkeys((here, *here.parents, own)):
        yield folder / _PACKAGE
