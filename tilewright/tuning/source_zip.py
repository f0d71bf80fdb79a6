"""The compiler's own source as a zip, with which a page generates kernels under Pyodide.

Input: this package's files.  Output: bytes of a zip with the modules that `ENTRY` imports, their
data files, and the digest of the whole compiler.  The modules may need only the standard library.
Equal sources give equal bytes.
"""

from __future__ import annotations

import ast
import io
import sys
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tilewright.base.compiler_digest import DIGEST_FILE, compiler_digest
from tilewright.base.errors import CompilerBug

PACKAGE = "tilewright"
ROOT = Path(__file__).parents[2]
#: The module that the worker in the page imports.
ENTRY = f"{PACKAGE}.tuning.page_compiler"
DATA = "data"

#: The earliest date that a zip can represent.
_DATE = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
_PLAIN_FILE = 0o100644 << 16


@cache
def source_zip(entries: tuple[str, ...] = (ENTRY,)) -> bytes:
    """The zip.  It is not compressed, so its bytes do not depend on the version of zlib."""
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_STORED) as archive:
        files = {path: path.read_bytes() for path in _with_data(modules(entries).values())}
        # The digest of the whole compiler: these modules alone would give another one.
        files[ROOT / PACKAGE / DIGEST_FILE] = compiler_digest().encode()
        for path, data in sorted(files.items()):
            info = zipfile.ZipInfo(path.relative_to(ROOT).as_posix(), _DATE)
            info.create_system = _UNIX
            info.external_attr = _PLAIN_FILE
            archive.writestr(info, data)
    return found.getvalue()


def modules(entries: Iterable[str]) -> dict[str, Path]:
    """Every module of this package that the entries import, transitively.

    Imports inside functions are not followed: they are needed only to read bundles.
    """
    found: dict[str, Path] = {}
    open_ = list(entries)
    while open_:
        name = open_.pop()
        path = _file(name)
        if name in found or path is None:
            continue
        found[name] = path
        for imported in _imports(ast.parse(path.read_text("utf-8"))):
            top = imported.partition(".")[0]
            if top not in sys.stdlib_module_names and top != PACKAGE:
                raise CompilerBug(
                    f"{name} imports {imported}, which pages do not have",
                    hint="Kernel generation may use the standard library only",
                    path=str(path),
                )
            open_ += _lineage(imported)
    return found


def _with_data(paths: Iterable[Path]) -> set[Path]:
    """The modules, and the files in `data` folders beside them."""
    found = set(paths)
    data = (file for path in found for file in path.parent.glob(f"{DATA}/*"))
    return found | {file for file in data if file.suffix != ".py" and file.is_file()}


def _file(module: str) -> Path | None:
    """A module's file; None for a name inside of a module, and for what is not ours."""
    path = ROOT.joinpath(*module.split("."))
    files = (path / "__init__.py", path.with_suffix(".py"))
    return next((f for f in files if module.startswith(PACKAGE) and f.is_file()), None)


def _lineage(name: str) -> list[str]:
    """`a.b.c` → `a`, `a.b`, `a.b.c`: importing a module runs its packages first."""
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _imports(tree: ast.AST) -> Iterator[str]:
    """Names that code imports when it runs: what only type checkers see is left out."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(str(module), names):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.If(ast.Name("TYPE_CHECKING"), _, orelse):
                yield from _imports(ast.Module(orelse, []))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                pass
            case _:
                yield from _imports(node)
