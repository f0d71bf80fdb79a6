"""A small bundle for the tests of tuning without a server, and what a page tells its compiler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab.subjects import compile_matmul
from tilewright.bundle import Bundle, open_bundle, write

NARROW, WIDE = "wasm-x86-relaxed-32k", "wasm-x86-relaxed"


def small(folder: Path) -> Bundle:
    write(compile_matmul(16, 64, 48).contents, folder)
    return open_bundle(folder)


def read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def files_below(folder: Path) -> dict[str, bytes]:
    found = (p for p in folder.rglob("*") if p.is_file())
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in found}


def given(bundle: Bundle, **more: Any) -> dict[str, Any]:
    """What a page tells its compiler."""
    manifest = bundle.manifest
    return {
        "kernels": bundle.read(manifest.kernels).decode(),
        "slots": bundle.read(next(iter(manifest.targets.values())).kernels).decode(),
        "plans": [[s.spec for s in p.steps] for p in manifest.plans],
        "device": NARROW,
    } | more
