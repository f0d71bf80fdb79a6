"""Targets: what turns kernels and plans into what a host runs.  Below the waist.

Here belong the interface (`protocol.py`), one folder per target, what several targets share, and
the registry by name.  Nothing above names a target but by its registered name.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.base.errors import UsageError
from tilewright.targets.c.api import C
from tilewright.targets.cuda.api import Cuda
from tilewright.targets.protocol import Code, Facts, Target
from tilewright.targets.wasm.api import Wasm
from tilewright.targets.wgsl.api import Wgsl

__all__ = ["DEFAULT", "TARGETS", "Code", "Facts", "Target", "target"]

#: Every target by its name.
TARGETS: Mapping[str, Target] = {t.name: t for t in (Wasm(), Wgsl(), Cuda(), C())}

#: What is built where nobody says otherwise.
DEFAULT = ("wasm",)


def target(name: str) -> Target:
    """The target of this name; `UsageError` if there is none."""
    if name not in TARGETS:
        raise UsageError(
            f"There is no target {name!r}",
            hint=f"Targets are {', '.join(TARGETS)}",
            known=list(TARGETS),
        )
    return TARGETS[name]
