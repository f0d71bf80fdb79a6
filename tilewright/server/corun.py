"""Results of co-running that were given to the server: listed, and sent as they are.

Input: JSON files of `tilewright corun` (--json, --trace) or of the benchmark corun.policies.
Output: their list at /api/corun and each at /api/corun/NUMBER, which web/page/corun_results.js
reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tilewright.base.errors import UsageError
from tilewright.bundle.format import MALFORMED
from tilewright.server.file_responses import send_whole
from tilewright.server.headers import REVALIDATE

PLACE = "/api/corun"
#: A document has one of these: a benchmark's record, a run, a trace, a run that was refused.
KINDS = ("rows", "policy", "traceEvents", "error")


class CorunFiles:
    """Files are read at each request, so a benchmark may go on writing them.

    Raises UsageError for a file that has no results of co-running.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        for path in paths:
            _check(path)
        self._paths = tuple(paths)

    def routes(self) -> list[Route]:
        return [Route(PLACE, self._list), Route(f"{PLACE}/{{number:int}}", self._file)]

    def _list(self, _request: Request) -> Response:
        """Name and address of each file, without its folder, which is not public."""
        entries = [
            {"name": path.name, "url": f"{PLACE}/{number}"}
            for number, path in enumerate(self._paths)
        ]
        return JSONResponse(entries, headers={"cache-control": REVALIDATE})

    async def _file(self, request: Request) -> Response:
        number = request.path_params["number"]
        if number >= len(self._paths) or not self._paths[number].is_file():
            raise HTTPException(404)
        return await send_whole(request, self._paths[number])


def _check(path: Path) -> None:
    try:
        found = _documents(path.read_bytes())
    except (OSError, *MALFORMED) as error:
        raise UsageError(
            f"{path} cannot be read as JSON: {error}",
            hint="Give what `tilewright corun --json` or the benchmark corun.policies wrote",
            path=str(path),
        ) from error
    if not found or not all(isinstance(d, dict) and set(KINDS) & d.keys() for d in found):
        raise UsageError(
            f"{path} has no results of co-running",
            hint="Give what `tilewright corun` (--json, --trace) or the benchmark corun.policies "
            "wrote",
            path=str(path),
        )


def _documents(data: bytes) -> list[object]:
    """The JSON documents of a file: one, or one on each line."""
    try:
        return [msgspec.json.decode(data)]
    except msgspec.DecodeError:  # one that is nested too deeply is refused above
        return msgspec.json.Decoder(object).decode_lines(data)
