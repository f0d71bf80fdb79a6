"""Download sizes: the engine's JavaScript and a bundle's code.

Input: nothing, or a bundle.  Output: the size of the engine, minified and gzipped; with a bundle
also that of its code, and results/sizes.json.

    uv run python benchmarks/sizes.py .demo/bundle
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import common

from tilewright.bundle import open_bundle

ROOT = Path(__file__).parents[1]
WEB = ROOT / "tilewright" / "web"
#: The module that a page loads, and the workers that it starts; they import all others.
ENGINE = ("engine/engine.js", "engine/worker.js", "engine/pool_worker.js")
ENGINE_LIMIT = 16_500
CODE_LIMIT = 300_000


def delivered() -> dict[str, int]:
    """Bytes of the engine's files, each once, as `tilewright serve` and npm's CDNs send them."""
    with tempfile.TemporaryDirectory() as into:
        command = ["node", ROOT / "scripts" / "minify.mjs", WEB, into]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        needed = _closure(json.loads(done.stdout))
        return {name: len(gzip.compress((Path(into) / name).read_bytes(), 9)) for name in needed}


def _closure(imports: dict[str, list[str]]) -> list[str]:
    names = list(ENGINE)
    for name in names:
        names += [other for other in dict.fromkeys(imports[name]) if other not in names]
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path, nargs="?")
    folder = parser.parse_args().bundle
    files = delivered()
    print(files)
    rows: list[dict[str, Any]] = [
        {
            "what": "engine, minified and gzipped",
            "bytes": sum(files.values()),
            "limit": ENGINE_LIMIT,
        }
    ]
    if folder is not None:
        manifest = open_bundle(folder).manifest
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
        print(row)
    if folder is not None:
        print(common.save("sizes", rows))


if __name__ == "__main__":
    main()
