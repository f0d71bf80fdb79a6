"""Device classes: one table, matched from what a page knows, and never without a way out."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from tilewright.base.errors import UsageError
from tilewright.targets.device_classes import CLASSES, find, match, table
from tilewright.targets.wasm import VARIANTS

X86 = {"kind": "wasm", "architecture": "x86", "features": ["relaxed_simd", "dot_u8"]}
ARM = {"kind": "wasm", "architecture": "arm", "features": ["relaxed_simd"]}


@pytest.mark.parametrize(
    ("facts", "id"),
    [
        (X86 | {"l1": 32768}, "wasm-x86-relaxed-32k"),
        (X86 | {"l1": 49152}, "wasm-x86-relaxed-48k"),
        (X86 | {"l1": 65536}, "wasm-x86-relaxed-48k"),
        (X86, "wasm-x86-relaxed"),
        (X86 | {"l1": 16384}, "wasm-x86-relaxed"),
        (X86 | {"features": ["relaxed_simd"], "l1": 32768}, "wasm-x86-simd-32k"),
        (ARM | {"l1": 131072}, "wasm-arm-relaxed-128k"),
        (ARM | {"features": [], "l1": 65536}, "wasm-arm-simd-64k"),
        ({"kind": "wasm"}, "wasm"),
        ({"kind": "wasm", "architecture": "riscv", "l1": 32768}, "wasm"),
        ({"kind": "webgpu", "vendor": "NVIDIA", "architecture": "ampere"}, "webgpu-nvidia-ampere"),
        ({"kind": "webgpu", "vendor": "nvidia", "architecture": "rubin"}, "webgpu-nvidia"),
        ({"kind": "webgpu", "vendor": "apple", "architecture": "metal-3"}, "webgpu-apple"),
        ({"kind": "webgpu", "vendor": "intel", "architecture": "xe-2lpg"}, "webgpu-intel-xe-2lpg"),
        ({"kind": "webgpu", "vendor": "nobody", "architecture": "ampere"}, "webgpu"),
        ({"kind": "cuda", "vendor": "NVIDIA", "architecture": "sm-90"}, "cuda-sm-90"),
        ({"kind": "cuda", "vendor": "nvidia", "architecture": "sm-999"}, "cuda"),
        ({"kind": "webgpu", "vendor": None, "features": None, "l1": None}, "webgpu"),
    ],
)  # fmt: skip
def test_the_most_exact_class_is_chosen(facts: dict, id: str) -> None:
    assert match(facts).id == id


def test_unknown_classes_and_kinds_are_typed_errors() -> None:
    with pytest.raises(UsageError, match="wasm-mips"):
        find("wasm-mips")
    with pytest.raises(UsageError, match="wasm or webgpu or cuda"):
        match({"kind": "metal"})


def test_every_class_falls_back_to_wider_ones() -> None:
    for id, device in CLASSES.items():
        assert find(id) == device
        chain = [device]
        while chain[-1].fallback:
            chain.append(find(chain[-1].fallback))
        assert chain[-1].id == device.kind
        for narrow, wide in pairwise(chain):
            assert narrow.fallback == wide.id
            assert narrow.features >= wide.features
            assert wide.vendor in ("", narrow.vendor)
            assert wide.architecture in ("", narrow.architecture)
            assert narrow.core.registers >= wide.core.registers
            assert narrow.core.l1 >= wide.core.l1
            assert narrow.core.warps >= wide.core.warps


def test_wasm_classes_agree_with_their_variant() -> None:
    for device in CLASSES.values():
        if device.kind != "wasm":
            continue
        variant = VARIANTS[device.variant]
        assert device.machine is not None
        assert device.machine.registers == variant.registers
        assert device.machine.fma == variant.fma
        assert device.features == variant.features or device.id == "wasm"
        assert device.core.registers == 4 * variant.registers
        assert device.core.l1 == device.machine.l1


def test_the_table_is_plain_data_in_the_order_of_matching() -> None:
    """A page takes the first entry that admits it; that must be what `match` says."""
    rows = json.loads(json.dumps(table()))
    assert [row["id"] for row in rows] == list(CLASSES)
    for row in rows:
        facts = {k: row[k] for k in ("kind", "vendor", "architecture", "features")}
        assert match(facts | {"l1": row["least_l1"]}).id == row["id"]
