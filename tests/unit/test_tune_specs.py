"""What a trial reads from a bundle about a kernel (web/tune/trial/specs.js), in Node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from node import run

from lab.subjects import product, steps_of
from tilewright.base.dtypes import F32, I32
from tilewright.bundle import write
from tilewright.graph.node import Graph, cast, constant, elementwise, graph_input
from tilewright.kernel.serialise import kernel_to_data

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


MASKS = """
globalThis.self = { postMessage() {} };
const { described } = await import('TUNE/trial/specs.js');
const { filled } = await import('TUNE/trial/trial_inputs.js');
const { buffers } = described(<data>);
const values = async (n, set) => [...new Set(new Float32Array((await filled(buffers[n], set, 3)).buffer))];
console.log(JSON.stringify([buffers.map((b) => b.extent), await values(<mask>, 'random'), await values(<mask>, 'edge')]));
"""  # noqa: E501


@pytest.mark.parametrize(
    ("factor", "masks"), [(np.finfo(np.float32).min, [2, 2]), (-1e9, [2, 0]), (-100.0, [0, 0])]
)
def test_masks_are_0_or_1(factor: float, masks: list[int]) -> None:
    """(1 - mask) * -3.4e38 is infinite for others, and a sum of infinities of both signs NaN, as
    which every kernel would pass."""
    whole, mask = graph_input("whole", (64,), I32), graph_input("mask", (64,), F32)
    one, large = constant(1.0, F32), constant(factor, F32)
    hidden = [
        elementwise("mul", elementwise("sub", one, given), large)
        for given in (cast(whole, F32), mask)
    ]
    other = elementwise("exp", graph_input("x", (64,), F32))
    y = elementwise("add", elementwise("add", *hidden), other)
    inputs = tuple((n.op.name, n) for n in (whole, mask, other.inputs[0]))
    (step,) = steps_of(Graph("masked", inputs, (("y", y),)))
    names = [i.op.name for i in step.inputs]
    script = MASKS.replace("<data>", json.dumps(kernel_to_data(step.kernel)))
    at = {name: 1 + names.index(name) for name in ("whole", "mask", "x")}
    extents, random, edge = run(script.replace("<mask>", str(at["mask"])))
    assert [extents[n] for n in at.values()] == [*masks, 0]
    assert (sorted(random) == [0, 1]) == (sorted(edge) == [0, 1]) == bool(masks[1])
