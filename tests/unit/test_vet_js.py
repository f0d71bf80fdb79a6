"""Modules are vetted before they are instantiated (web/engine/vet.js): ours pass, others do not.

The witness for mutated modules is Node's own reflection: what passes has exactly our imports and
exports, and instantiating it runs nothing.
"""

from __future__ import annotations

import base64
from pathlib import Path
from random import Random

import pytest
from helpers.hostile import FORGED, ILL_BEHAVED, sections
from node import run

from tilewright.bundle import open_bundle, write
from tilewright.bundle.format import SectionEntry
from tilewright.compiler import Options, compile_model
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.wasm.driver import driver
from tilewright.targets.wasm.isa import uleb
from tilewright.tuning.candidates import build, space_of
from tilewright.tuning.catalogue import kernels_of

MODELS = Path(__file__).parents[1] / "models"
DEVICE = CLASSES["wasm-x86-relaxed-48k"]

SCRIPT = """
const { driverOf, kernelsOf, objectionTo } = await import('TUNE/../engine/vet.js');
const bytesOf = (text) => Uint8Array.from(Buffer.from(text, 'base64'));
const found = <modules>.map(([text, kernels, extents]) => (
  objectionTo(bytesOf(text), kernels ? kernelsOf(kernels) : driverOf(extents))));
console.log(JSON.stringify(found));
"""

#: Of each module: null if it is refused here or by the browser, else what reflection tells of it.
REFLECTED = """
const { kernelsOf, objectionTo } = await import('TUNE/../engine/vet.js');
const memory = new WebAssembly.Memory({ initial: 1, maximum: 65536, shared: true });
const scratch = new WebAssembly.Global({ value: 'i32' }, 0);
const found = [];
for (const text of <modules>) {
  const bytes = Uint8Array.from(Buffer.from(text, 'base64'));
  if (objectionTo(bytes, kernelsOf(1)) || !WebAssembly.validate(bytes)) {
    found.push(null);
    continue;
  }
  const module = new WebAssembly.Module(bytes);
  const table = new WebAssembly.Table({ element: 'anyfunc', initial: 1 });
  const contents = () => Buffer.from(new Uint8Array(memory.buffer)).toString('latin1');
  const before = contents();
  let exports;
  try {
    ({ exports } = new WebAssembly.Instance(module, { env: { memory, table, scratch } }));
  } catch (error) {
    if (!(error instanceof WebAssembly.LinkError)) throw error; // other sizes than these
    found.push(null);
    continue;
  }
  found.push({
    imports: WebAssembly.Module.imports(module)
      .map(({ module, name, kind }) => `${module}.${name}: ${kind}`),
    exports: WebAssembly.Module.exports(module).map(({ name, kind }) => `${name}: ${kind}`),
    fills: table.get(0) === exports.k0,
    takes: exports.k0.length,
    untouched: before === contents(),
  });
}
console.log(JSON.stringify(found));
"""


def text(module: bytes) -> str:
    return base64.b64encode(module).decode()


def objections(modules: list[tuple[bytes, int, int]]) -> list[str]:
    found: list[str] = run(SCRIPT, modules=[(text(m), n, extents) for m, n, extents in modules])
    return found


@pytest.fixture(scope="module")
def section(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SectionEntry]:
    folder = tmp_path_factory.mktemp("bundle")
    write(
        compile_model(
            MODELS / "bert-tiny-eager-dynamo.onnx", Options(buckets={"n": (8, 16)})
        ).contents,
        folder,
    )
    return folder, open_bundle(folder).manifest.section("wasm")


def test_what_the_compiler_makes_passes(section: tuple[Path, SectionEntry]) -> None:
    """All builds of a bundle, its driver, a driver for extents, and candidates of each kernel."""
    folder, wasm = section
    bundle = open_bundle(folder)
    code = [(bundle.read(b.code), wasm.slots, 0) for b in wasm.builds]
    plain = (bundle.read(wasm.programs["driver"]), 0, 0)
    made = [
        (build(kernel, schedule, "wasm", DEVICE.variant).module, 1, 0)
        for kernel in kernels_of(bundle)
        for schedule in space_of(kernel, DEVICE).schedules[:3]
    ]
    modules = [*code, plain, (driver(3, extents=True), 0, 2), *made]
    assert objections(modules) == [""] * len(modules)


def test_forged_modules_are_refused() -> None:
    assert len(FORGED) >= 60
    found = dict(zip(FORGED, objections([(m, 1, 0) for m in FORGED.values()]), strict=True))
    assert [name for name, objection in found.items() if not objection] == []


def test_form_alone_is_vetted() -> None:
    """Kernels that only misbehave are a matter for trials."""
    assert objections([(m, 1, 0) for m in ILL_BEHAVED.values()]) == [""] * len(ILL_BEHAVED)


def test_a_driver_is_no_kernel_and_kernels_are_counted(section: tuple[Path, SectionEntry]) -> None:
    folder, wasm = section
    bundle = open_bundle(folder)
    code, plain = bundle.read(wasm.builds[0].code), bundle.read(wasm.programs["driver"])
    wrong = [
        (code, wasm.slots - 1, 0),
        (code, wasm.slots + 1, 0),
        (code, 0, 0),
        (plain, 1, 0),
        (plain, 0, 1),
    ]
    assert all(objections(wrong))


def mutated(module: bytes, rng: Random) -> bytes:
    """Another byte, a piece more or less, or sections moved, doubled or lost."""
    kind = rng.randrange(5)
    at = rng.randrange(8, len(module))
    if kind == 0:
        return module[:at] + bytes([rng.randrange(256)]) + module[at + 1 :]
    if kind == 1:
        return module[:at] + rng.randbytes(1) + module[at:]
    if kind == 2:
        return module[:at] + module[at + rng.randrange(1, 4) :]
    parts = sections(module)
    if kind == 3:
        parts.insert(rng.randrange(len(parts) + 1), rng.choice(parts))
    else:
        other = sections(rng.choice([*FORGED.values()][:50]))
        parts = sorted({**dict(parts), **dict(rng.sample(other, min(1, len(other))))}.items())
    body = b"".join(bytes([n]) + uleb(len(b)) + b for n, b in parts)
    return module[:8] + body


def test_what_passes_is_what_reflection_says(section: tuple[Path, SectionEntry]) -> None:
    folder, _ = section
    kernels = kernels_of(open_bundle(folder))
    originals = [
        build(k, space_of(k, DEVICE).schedules[0], "wasm", DEVICE.variant).module
        for k in kernels[:4]
    ]
    originals += [*ILL_BEHAVED.values()]
    rng = Random(12)
    modules = [mutated(rng.choice(originals), rng) for _ in range(6000)]
    passed = [f for f in run(REFLECTED, modules=[text(m) for m in modules]) if f]
    known = {"env.memory: memory", "env.table: table", "env.scratch: global"}
    assert len(passed) > 100
    for found in passed:
        assert set(found["imports"]) <= known
        assert len(set(found["imports"])) == len(found["imports"])
        assert found["exports"] == ["k0: function"]
        assert (found["fills"], found["takes"], found["untouched"]) == (True, 3, True)
