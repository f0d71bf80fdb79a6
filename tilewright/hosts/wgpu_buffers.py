"""A model's buffers on the wgpu host's device: its own, annexes of values, banks of weights.

Input: a device, the facts of a section (docs/bundle-wgsl.md).  Output: buffers, and the bindings of
kernels.  Addresses continue from one buffer to the next, in that order, as in web/engine/.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypedDict

from tilewright.base.abi import WORD_BYTES
from tilewright.hosts.wgpu_types import GpuBuffer, GpuDevice, WgpuPackage

#: The binding of a dispatch's first annex; the most annexes of a dispatch.
ANNEX, MOST_ANNEXES = 3, 6


#: The facts of a section, as bundles have them.
Facts = Mapping[str, Any]


class Binding(TypedDict):
    """A part of a buffer."""

    buffer: GpuBuffer
    offset: int
    size: int


class Buffers:
    """The buffers.  states, weights: addresses of all states and tensors

    Raises ValueError for facts that do not describe buffers, as the engine does (gpu_device.js).
    """

    def __init__(self, api: WgpuPackage, device: GpuDevice, facts: Facts) -> None:
        self._api, self._device = api, device
        _require(
            all(size > 0 and size % WORD_BYTES == 0 for size in sizes_of(facts)), "a buffer's size"
        )
        usage = api.BufferUsage.STORAGE | api.BufferUsage.COPY_SRC | api.BufferUsage.COPY_DST
        sizes = sizes_of(facts)
        self._made = [device.create_buffer(size=size, usage=usage) for size in sizes]
        self._begin = [0, *accumulate(sizes)][:-1]
        self._apart = 1 + len(_bytes(facts, "annexes"))
        self.states = self._addresses(facts, "annexes", "states", 0)
        self.weights = self._addresses(facts, "banks", "tensors", self._apart - 1)

    def at(self, address: int, size: int) -> tuple[GpuBuffer, int]:
        """The buffer that contains these bytes, and the offset of the first one in it."""
        number = bisect_right(self._begin, address) - 1
        buffer, place = self._made[number], address - self._begin[number]
        _require(0 <= place <= buffer.size - size, "an address")
        return buffer, place

    def require_own(self, addresses: Iterable[int]) -> None:
        """Raises ValueError for an address outside the model's own buffer, where inputs and outputs
        are."""
        own = self._made[0].size
        _require(all(0 <= at <= own for at in addresses), "the place of an input or output")

    def require_call(self, words: Sequence[int], bank: int, annexes: Sequence[int]) -> None:
        """Raises ValueError for a step with buffers that do not exist (as gpu_plan.js does)."""
        known = range(1, 1 + len(self._annexes))
        most = max(buffer.size for buffer in self._made) // WORD_BYTES
        _require(all(0 <= word <= most for word in words), "a step's words")
        _require(0 <= bank <= len(self._banks), "a step's bank")
        once = len(set(annexes)) == len(annexes) <= MOST_ANNEXES
        _require(once and all(n in known for n in annexes), "a step's annexes")

    def layout(self) -> object:
        kinds: list[tuple[int, Mapping[str, object]]] = [
            (0, {"type": "storage"}),
            (1, {"type": "uniform", "has_dynamic_offset": True}),
            *((2, {"type": "read-only-storage"}) for _ in self._banks[:1]),
            *((ANNEX + n, {"type": "storage"}) for n in range(len(self._annexes[:MOST_ANNEXES]))),
        ]
        compute = self._api.ShaderStage.COMPUTE
        return self._device.create_bind_group_layout(
            entries=[{"binding": n, "visibility": compute, "buffer": kind} for n, kind in kinds]
        )

    def bindings(self, layout: object, block: Binding, bank: int, annexes: Sequence[int]) -> object:
        """The bind group of a dispatch.  block: the buffer of its numbers;  bank, annexes: of its
        step

        All dispatches have the same number of annexes, each at most once: a buffer must not be
        writable through two bindings.
        """
        others = (n for n in range(1, 1 + len(self._annexes)) if n not in annexes)
        bound = [self._annexes[n - 1] for n in (*annexes, *others)][:MOST_ANNEXES]
        resources = [
            (0, _whole(self._made[0])),
            (1, block),
            *((2, _whole(self._banks[max(bank, 1) - 1])) for _ in self._banks[:1]),
            *((ANNEX + n, _whole(buffer)) for n, buffer in enumerate(bound)),
        ]
        entries = [{"binding": n, "resource": resource} for n, resource in resources]
        return self._device.create_bind_group(layout=layout, entries=entries)

    @property
    def _annexes(self) -> list[GpuBuffer]:
        return self._made[1 : self._apart]

    @property
    def _banks(self) -> list[GpuBuffer]:
        return self._made[self._apart :]

    def _addresses(self, facts: Facts, kind: str, of: str, before: int) -> list[int]:
        """Addresses of states or tensors.  before: buffers between the model's own and the first of
        these"""
        numbers = facts.get(kind, {}).get("of", [0] * len(facts[of]))
        last = len(_bytes(facts, kind))
        begin, sizes = [0, *self._begin[before + 1 :]], [self._made[0].size, *_bytes(facts, kind)]
        for n, at in zip(numbers, facts[of], strict=True):
            _require(
                0 <= n <= last and 0 <= at <= sizes[n] and at % WORD_BYTES == 0, f"one of {of}"
            )
        return [begin[n] + at for n, at in zip(numbers, facts[of], strict=True)]


def sizes_of(facts: Facts) -> list[int]:
    """Bytes of all buffers, the model's own first."""
    further = (_bytes(facts, kind) for kind in ("annexes", "banks"))
    return [int(facts["memory"]["bytes"]), *(size for sizes in further for size in sizes)]


def _bytes(facts: Facts, kind: str) -> list[int]:
    found: list[int] = facts.get(kind, {}).get("bytes", [])
    return found


def _require(right: bool, what: str) -> None:
    if not right:
        raise ValueError(f"{what} is not a buffer of the model")


def _whole(buffer: GpuBuffer) -> Binding:
    return {"buffer": buffer, "offset": 0, "size": buffer.size}
