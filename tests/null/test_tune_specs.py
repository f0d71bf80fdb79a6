"""What a trial reads from a bundle about a kernel (web/tune/trial/specs.js), in Node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from node import run

from tilewright.benchkernel import product
from tilewright.bundle import write

SCRIPT = """
const { readFile } = await import('node:fs/promises');
const { programOf } = await import('TUNE/../engine/wasm.js');
const { openSpecs } = await import('TUNE/trial/specs.js');
const read = async ({ file }) => Uint8Array.from(await readFile(`${<folder>}/${file}`)).buffer;
const json = async (ref) => JSON.parse(new TextDecoder().decode(await read(ref)));
const manifest = await json((await json({ file: 'bundle.json' })).manifest);
const program = programOf(manifest);
const name = program.builds[0].variant;
const parts = { manifest, program, memory: null, file: read };
const specs = await openSpecs({ parts, info: { variant: { name } } });
console.log(JSON.stringify(specs.facts(0)));
"""


def facts(folder: Path, bits: int) -> Any:
    made = product("mk,kn->mn", (1, 64), (64, 32), weight=True, bits=bits)
    write(made.contents, folder)
    return run(SCRIPT, folder=str(folder))


@pytest.mark.parametrize(("bits", "special"), [(32, True), (4, False)])
def test_infinities_are_tried_where_every_candidate_must_keep_them(
    bits: int, special: bool, tmp_path: Path
) -> None:
    """Of a product with packed integers some take zero points out of the sum: inf - inf."""
    assert facts(tmp_path, bits)["special"] is special
