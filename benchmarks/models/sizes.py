"""Download sizes: the engine's JavaScript and a bundle's code.

Input: nothing, or a bundle.  Output: the size of the engine, minified and gzipped; with a bundle
also that of its code, and results/sizes.json.

    python -m benchmarks models.sizes .demo/bundle
"""

from __future__ import annotations

import gzip
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import Row, Run
from tilewright.bundle import open_bundle

ROOT = Path(__file__).parents[2]
WEB = ROOT / "tilewright" / "web"
#: The module that a page loads, and the workers that it starts; they import all others.
ENGINE = ("engine/engine.js", "engine/worker.js", "engine/pool_worker.js")
ENGINE_LIMIT = 16_500
CODE_LIMIT = 300_000


def minified(web: Path, into: Path) -> dict[str, list[str]]:
    """Writes a web part as users get it; the files that each file imports."""
    command: list[str | Path] = ["node", ROOT / "scripts" / "minify.mjs", web, into]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def delivered() -> dict[str, int]:
    """Bytes of the engine's files, each once, as `tilewright serve` and npm's CDNs send them."""
    with tempfile.TemporaryDirectory() as into:
        needed = _closure(minified(WEB, Path(into)))
        return {name: len(gzip.compress((Path(into) / name).read_bytes(), 9)) for name in needed}


def _closure(imports: dict[str, list[str]]) -> list[str]:
    names = list(ENGINE)
    for name in names:
        names += [other for other in dict.fromkeys(imports[name]) if other not in names]
    return names


def main(
    run: Run, bundle: Annotated[Path | None, typer.Argument(help="Its code counts, too.")] = None
) -> None:
    files = delivered()
    print(files)
    rows: list[Row] = [
        {
            "what": "engine, minified and gzipped",
            "bytes": sum(files.values()),
            "limit": ENGINE_LIMIT,
        }
    ]
    if bundle is not None:
        manifest = open_bundle(bundle).manifest
        section = manifest.section("wasm")
        rows += [
            {
                "what": f"{manifest.name} code: {build.variant}",
                "bytes": build.code.bytes + section.programs["driver"].bytes,
                "limit": CODE_LIMIT,
            }
            for build in section.builds
        ]
    for row in rows:
        run.show(row)
    if bundle is not None:
        run.save("sizes", rows)
