"""WGSL as a target: what targets/protocol.py asks for.

Input: kernels and programs.  Output: a section with one JSON file of shader modules, and per plan a
list of dispatches with the word at which each of their buffers begins (docs/bundle.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from tilewright.base.dtypes import DType
from tilewright.base.errors import UnsupportedDType
from tilewright.base.sections import Build, File, Section
from tilewright.kernel.expr import dtype_of
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import walk
from tilewright.plan import Program, State, Tensor, Value
from tilewright.plan.arena import arena_of, row
from tilewright.targets.gpu import matrices, rounded
from tilewright.targets.gpu.features import FEATURES
from tilewright.targets.gpu.target import GROUP, GroupTarget, group_of, halves_of
from tilewright.targets.gpu.tiles import LANES
from tilewright.targets.gpu.vectors import in_vectors
from tilewright.targets.plain import PlainVariant, numbers_of
from tilewright.targets.protocol import Code, Facts, slots_of
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.layouts import PACKING
from tilewright.targets.wgsl.banks import BANK, WORD, Banks, banks_of
from tilewright.targets.wgsl.classes import CLASSES, VARIANT
from tilewright.targets.wgsl.emit import WORDS, module

#: Words before everything else: the first tells of an index out of range.  All that follows begins
#: at multiples of 64 words, as bindings must (base/alignment.py counts words here).
HEAD = 64


class Wgsl(GroupTarget):
    """The target's only value is in targets/__init__.py."""

    name = "wgsl"
    variant = PlainVariant(VARIANT)
    classes = CLASSES
    facts = Facts(
        address_bits=32,
        dtypes=frozenset(WORDS),
        packing=PACKING,
        features=FEATURES,
        group=GROUP,
        halves=True,
        subnormals=False,
    )

    def emit(self, kernel: Kernel, fn: TileFn, needs: frozenset[str] = frozenset()) -> str:
        _require_types(kernel)
        return module(fn, needs)

    def encode(
        self,
        program: Program,
        codes: Mapping[str, Sequence[Code]],
        settings: Mapping[str, Any],
    ) -> Section:
        for value in (v for plan in program.plans for v in plan.values):
            _require(value.dtype, f"the {value.kind} {value.name}".rstrip())
        halves = halves_of(program)
        sizes = [
            -(-_words(t) // 2) if n in halves else _words(t) for n, t in enumerate(program.tensors)
        ]
        kept = [_words(s) for s in program.states]
        most = settings.get("bank", BANK) // WORD
        words, end = row(sizes, HEAD)
        banks = Banks((0,) * len(sizes), words)
        if row(kept, end)[1] + _most(program) > most:
            banks, end = banks_of(program, sizes, HEAD, most)
        states, at = row(kept, end)
        return self._section(program, codes, banks, states, at)

    def exchange(
        self,
        program: Program,
        old: Section,
        variant: str,
        codes: Sequence[Code],
        changed: frozenset[int],
        settings: Mapping[str, Any],
    ) -> Section:
        """Where tensors lie is read from the old section: nobody asks for their table again."""
        tensors, states = ([at // WORD for at in old.facts[n]] for n in ("tensors", "states"))
        known = old.facts.get("banks", {"bytes": [], "of": [0] * len(tensors)})
        sizes = tuple(size // WORD for size in known["bytes"])
        banks = Banks(tuple(known["of"]), tuple(tensors), sizes)
        at = old.memory // WORD - _most(program)
        return self._section(program, {variant: codes}, banks, states, at)

    def better(self, kernel: Kernel) -> tuple[Schedule, ...]:
        return (*matrices.usual(kernel), *rounded.usual(kernel))

    def _section(
        self,
        program: Program,
        codes: Mapping[str, Sequence[Code]],
        banks: Banks,
        states: Sequence[int],
        at: int,
    ) -> Section:
        """The section, given where tensors lie, the first words of all states, and of the arena."""
        ((variant, listed),) = codes.items()
        numbers = slots_of(codes)
        slots = {body: slot for slot, body in enumerate(dict.fromkeys(c.body for c in listed))}
        halves = halves_of(program)
        able = cache(
            lambda number, whole: self.able(
                listed[number], lambda fn: whole or not in_vectors(fn), frozenset()
            )
        )
        needs: dict[int, list[str]] = {}

        def call(code: Code, apart: frozenset[int]) -> dict[str, Any]:
            """The fields of a step that depend on the code.  apart: its buffers in a bank"""
            body = module(code.loops, code.needs, apart) if apart else code.body
            slot = slots.setdefault(body, len(slots))
            if code.needs:
                needs[slot] = sorted(code.needs)
            count, *scalars = numbers_of(code.loops)
            group = group_of(code.loops)
            return {"slot": slot, "tiles": count, "group": group, "scalars": scalars}

        plans, files, most = [], [], 0
        for plan in program.plans:
            offsets, total = arena_of(plan, _words)
            most = max(most, total)
            words = [
                banks.words[v.tensor] if v.kind == "weight"
                else states[v.tensor] if v.kind == "state"
                else at + offset
                for v, offset in zip(plan.values, offsets, strict=True)
            ]  # fmt: skip
            plans.append({
                "inputs": [words[i] * WORD for i in plan.inputs],
                "outputs": [words[i] * WORD for i in plan.outputs],
            })  # fmt: skip
            calls = []
            for step in plan.steps:
                read = [plan.values[a.value] for a in step.accesses]
                begin = [
                    words[a.value] + a.offset * WORDS[v.dtype.name] // (1 + _in(v, halves))
                    for a, v in zip(step.accesses, read, strict=True)
                ]
                lying = [banks.of[v.tensor] if v.kind == "weight" else 0 for v in read]
                bank = max(lying)
                apart = frozenset(n for n, other in enumerate(lying) if other)
                whole = not any(word % LANES for word in begin)
                *better, usual = (call(code, apart) for code in able(step.kernel, whole))
                more = {"better": better} if better else {}
                calls.append(usual | {"words": begin} | more | ({"bank": bank} if bank else {}))
            files.append(File(json.dumps(calls, separators=(",", ":")).encode(), "json"))
        texts = json.dumps(list(slots)).encode()
        size = (at + most) * WORD
        return Section(
            builds=(Build(variant, (), File(texts, "json"), tuple(files), _facts(needs)),),
            slots=len(slots),
            memory=size,
            programs={},
            plans=tuple(plans),
            kernels=numbers,
            facts={
                "memory": {"bytes": size},
                "tensors": [words * WORD for words in banks.words],
                "states": [words * WORD for words in states],
                **({"halves": sorted(halves)} if halves else {}),
                **banks.to_facts(),
            },
        )


def _facts(needs: Mapping[int, list[str]]) -> dict[str, Any]:
    """What a build says of its slots: the features of those that need some."""
    return {"needs": {str(slot): names for slot, names in sorted(needs.items())}} if needs else {}


def _require_types(kernel: Kernel) -> None:
    """`UnsupportedDType` for a kernel that computes what WGSL has no words for."""
    values = (kernel.value, *(stage.value for stage in kernel.stages))
    found = {b.dtype for b in kernel.buffers} | {dtype_of(e) for v in values for e in walk(v)}
    for dtype in sorted(found, key=lambda d: d.name):
        _require(dtype, f"kernel {kernel.name}")


def _require(dtype: DType, who: str) -> None:
    if dtype.name not in WORDS:
        raise UnsupportedDType(
            f"{who} has elements of {dtype}, which WGSL does not have",
            hint="Convert the model to f32, or build it with --target wasm",
            dtype=dtype.name,
            target="wgsl",
        )


def _most(program: Program) -> int:
    """Words of the arena that all plans share."""
    return max((arena_of(plan, _words)[1] for plan in program.plans), default=0)


def _in(value: Value, tensors: frozenset[int]) -> bool:
    """Whether a value lies as halves."""
    return value.halves or (value.kind == "weight" and value.tensor in tensors)


def _words(tensor: Tensor | State | Value) -> int:
    """How many words it takes, a weight if not as halves."""
    words = tensor.bytes // tensor.dtype.size * WORDS[tensor.dtype.name]
    return words // 2 if isinstance(tensor, Value) and tensor.halves else words
