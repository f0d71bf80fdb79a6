"""Download sizes: the JavaScript of the engine and of language models, and a bundle's code.

Input: nothing, or a bundle.  Output: the size of the engine, minified and gzipped; with a bundle
also that of its code, and results/models.sizes.json.

    python -m benchmarks models.sizes .demo/bundle
"""

from __future__ import annotations

import gzip
import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import ROOT, Run
from benchmarks.records import Row
from tilewright.bundle import open_bundle

WEB = ROOT / "tilewright" / "web"
#: The module that a page loads, and the workers that it starts; they import all others.
ENGINE = ("engine/engine.js", "engine/worker.js", "engine/pool_worker.js")
#: 15,000 bytes are wanted; with states that grow, code that one can read takes this.
ENGINE_LIMIT = 17_200
#: What a page with a language model loads: with the engine, the worker for text, and packages.
LANGUAGE = (*ENGINE, "engine/inspect.js", "language/language.js", "language/text_worker.js")
LANGUAGE_LIMIT = 60_000
CODE_LIMIT = 300_000


def minified(web: Path, into: Path) -> dict[str, list[str]]:
    """Writes a web part as users get it; the files that each file imports."""
    command: list[str | Path] = ["node", ROOT / "scripts" / "minify.mjs", web, into]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def delivered(wanted: Sequence[str] = ENGINE) -> dict[str, int]:
    """Bytes of these files and of what they import, each once, as `tilewright serve` and npm's
    CDNs send them."""
    with tempfile.TemporaryDirectory() as into:
        needed = _closure(wanted, minified(WEB, Path(into)))
        return {name: len(gzip.compress((Path(into) / name).read_bytes(), 9)) for name in needed}


def _closure(wanted: Sequence[str], imports: dict[str, list[str]]) -> list[str]:
    names = list(wanted)
    for name in names:
        names += [other for other in dict.fromkeys(imports[name]) if other not in names]
    return names


def main(
    run: Run, bundle: Annotated[Path | None, typer.Argument(help="Its code counts, too.")] = None
) -> None:
    rows: list[Row] = []
    for what, wanted, limit in (
        ("engine", ENGINE, ENGINE_LIMIT),
        ("engine and language models", LANGUAGE, LANGUAGE_LIMIT),
    ):
        files = delivered(wanted)
        print(files)
        row = {"what": f"{what}, minified and gzipped", "bytes": sum(files.values())}
        rows.append(row | {"limit": limit})
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
        run.save(rows)
