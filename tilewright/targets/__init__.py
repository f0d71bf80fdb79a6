"""Targets turn kernels and plans into code that a host runs.  They are the part below the waist.

The package holds the interface (`protocol.py`), one folder per target, the code that several
targets share, and the registry of targets by name.  `gpu/` and `simd/` make loops.  `strategy.py`
is the interface of strategies, `schedule.py` the base of schedules, `ticket_protocol.py` the claims
of elastic kernels, `scalar_lowering.py` and `brace_text.py` the plain kernels, `vectors.py` vectors
of four elements, and `device_classes.py` the device classes.  Code above the waist names a target
only by its registered name.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.base.errors import unknown_name
from tilewright.targets.c.target import C
from tilewright.targets.cuda.target import Cuda
from tilewright.targets.protocol import Code, Facts, Target
from tilewright.targets.wasm.target import Wasm
from tilewright.targets.wgsl.target import Wgsl

__all__ = ["DEFAULT", "TARGETS", "Code", "Facts", "Target", "target"]

#: Every target by its name.
TARGETS: Mapping[str, Target] = {t.name: t for t in (Wasm(), Wgsl(), Cuda(), C())}

#: Targets that are built where the caller names none.
DEFAULT = ("wasm",)


def target(name: str) -> Target:
    """The target of this name; `UsageError` if there is none."""
    if name not in TARGETS:
        raise unknown_name("target", name, TARGETS)
    return TARGETS[name]
