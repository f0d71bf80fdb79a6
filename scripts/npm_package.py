#!/usr/bin/env python3
"""Makes the npm package tilewright-web: engine, tuner, language models, their types, and the
compiler's source.

Input: tilewright/web.  Output: build/npm/, ready for `npm publish`, and the file of `npm pack`;
foreign files there are not overwritten (bundle/owned_files.py).  engine/, tune/ and language/ are
minified; src/ has them with comments, their types, and what they use of vendor/.  The package's
metadata is tilewright/web/package.json.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tilewright.base.errors import UsageError
from tilewright.bundle.owned_files import FolderPart, check
from tilewright.tuning.source_zip import source_zip

ROOT = Path(__file__).parents[1]
WEB = ROOT / "tilewright" / "web"
FOLDERS = ("engine", "tune", "language")
VENDOR = ("vendor/jinja", "vendor/tokenizers")
TYPES = "index.d.ts"
FILES = ("package.json", "README.md")


def stage(into: Path) -> None:
    """Fills the package's new folder."""
    source = into / "src"
    for folder in (*FOLDERS, *VENDOR):
        shutil.copytree(WEB / folder, source / folder)
    shutil.copy(WEB / TYPES, source / TYPES)
    for name in FILES:
        shutil.copy(WEB / name, into / name)
    shutil.copy(ROOT / "LICENSE", into / "LICENSE")
    (into / "compiler").mkdir()
    (into / "compiler" / "source.zip").write_bytes(source_zip())
    declare(source)
    command = ["node", ROOT / "scripts" / "minify.mjs", source, into]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def declare(into: Path) -> None:
    """Writes type declarations beside the modules, which tsc derives from JSDoc."""
    made = into / "declared"
    subprocess.run(
        [ROOT / "node_modules" / ".bin" / "tsc", "--noEmit", "false", "--declaration",
         "--emitDeclarationOnly", "--rootDir", ROOT, "--outDir", made],
        cwd=ROOT, check=True,
    )  # fmt: skip
    for folder in FOLDERS:
        root = made / WEB.relative_to(ROOT)
        for path in sorted((root / folder).rglob("*.d.ts")):
            place = into / path.relative_to(root)
            text = path.read_text() + _left_out(place.with_name(path.name.replace(".d.ts", ".js")))
            up = "../" * (len(path.relative_to(root).parts) - 1)
            needed = "".join(f'/// <reference path="{up}{p}" />\n' for p in _globals(text))
            place.write_text(needed + text)
    shutil.rmtree(made)


def _left_out(script: Path) -> str:
    """Declarations of functions with a named type, which tsc 7.0 omits.

    before: /** @type {Tune.Tune} */ export async function tune(engine, options) {
    after:  export declare const tune: Tune.Tune;
    """
    found = re.findall(_NAMED_TYPE, script.read_text())
    return "".join(f"export declare const {name}: {kind};\n" for kind, name in found)


_NAMED_TYPE = r"@type \{([\w.]+)\} \*/\s*export (?:async )?function (\w+)"


def _globals(text: str) -> Iterator[str]:
    """The files, below web/, that declare the namespaces which these declarations use."""
    for folder in FOLDERS:
        for types in sorted((WEB / folder).rglob("*.d.ts")):
            for name in re.findall(r"^export as namespace (\w+);", types.read_text(), re.MULTILINE):
                if re.search(rf"\b{name}\.", text):
                    yield types.relative_to(WEB).as_posix()


def packed(name: str) -> dict[str, bytes]:
    """The package below a folder of this name, and the file of `npm pack` beside it."""
    with TemporaryDirectory(prefix="tilewright-npm-") as place:
        made = Path(place)
        stage(made / name)
        command = ["npm", "pack", "--silent", "--pack-destination", made]
        subprocess.run(command, cwd=made / name, check=True)
        paths = sorted(path for path in made.rglob("*") if path.is_file())
        return {path.relative_to(made).as_posix(): path.read_bytes() for path in paths}


def put(files: Mapping[str, bytes], folder: Path) -> None:
    """Raises UsageError where a file there is foreign."""
    check(folder, files)
    with FolderPart(folder, "npm package") as section:
        section.put_all(files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "npm")
    into = parser.parse_args().into.resolve()
    try:
        put(packed(into.name), into.parent)
    except UsageError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
