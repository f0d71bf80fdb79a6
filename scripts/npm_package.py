#!/usr/bin/env python3
"""Makes the npm package tilewright-web: engine, tuner, their types, and the compiler's source.

Input: tilewright/web.  Output: build/npm/, ready for `npm publish`, and the file that `npm pack`
makes of it.  What the package says of itself is tilewright/web/package.json; nothing is minified.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tilewright.tuning.source import source_zip

ROOT = Path(__file__).parents[1]
WEB = ROOT / "tilewright" / "web"
FOLDERS = ("engine", "tune")
FILES = ("package.json", "index.d.ts", "README.md")


def stage(into: Path) -> None:
    """The package's folder, made anew."""
    shutil.rmtree(into, ignore_errors=True)
    for folder in FOLDERS:
        shutil.copytree(WEB / folder, into / folder)
    for name in FILES:
        shutil.copy(WEB / name, into / name)
    shutil.copy(ROOT / "LICENSE", into / "LICENSE")
    (into / "compiler").mkdir()
    (into / "compiler" / "source.zip").write_bytes(source_zip())
    declare(into)


def declare(into: Path) -> None:
    """Types of the modules, beside them, as the compiler of the checks derives them from JSDoc."""
    made = into / "declared"
    subprocess.run(
        [ROOT / "node_modules" / ".bin" / "tsc", "--noEmit", "false", "--declaration",
         "--emitDeclarationOnly", "--rootDir", ROOT, "--outDir", made],
        cwd=ROOT, check=True,
    )  # fmt: skip
    for folder in FOLDERS:
        for path in sorted((made / WEB.relative_to(ROOT) / folder).glob("*.d.ts")):
            needed = "".join(f'/// <reference path="{p}" />\n' for p in _globals(path))
            (into / folder / path.name).write_text(needed + path.read_text())
    shutil.rmtree(made)


def _globals(path: Path) -> Iterator[str]:
    """The files that declare the namespaces which the declarations in `path` use."""
    for folder in FOLDERS:
        for types in sorted((WEB / folder).glob("*.d.ts")):
            for name in re.findall(r"^export as namespace (\w+);", types.read_text(), re.MULTILINE):
                if re.search(rf"\b{name}\.", path.read_text()):
                    yield f"../{folder}/{types.name}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "npm")
    into = parser.parse_args().into
    stage(into)
    command = ["npm", "pack", "--silent", "--pack-destination", into.parent.resolve()]
    subprocess.run(command, cwd=into, check=True)


if __name__ == "__main__":
    main()
