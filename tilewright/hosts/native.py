"""The native host: compiles a bundle's C with the system's compiler and runs it on one thread.

Input: a bundle with a section for C, and input arrays.  Output: output arrays.  Each value is a
separate array, so that sanitizers find writes out of bounds.  It is for checking, not for speed.
Use it only for bundles that you trust: their C runs inside this process.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

from tilewright.base.errors import HostError, OutOfRange
from tilewright.bundle import BuildEntry
from tilewright.bundle.format import parse, reading
from tilewright.hosts.inputs_outputs import Array
from tilewright.hosts.plan_interpreter import PlanHost, PlanNumber, number_at
from tilewright.plan import Step

#: The target whose section it reads.
TARGET = "c"

#: Signed integers wrap, and the compiler does not contract products and sums into fma.
FLAGS = ("-O2", "-fwrapv", "-ffp-contract=off", "-shared", "-fPIC", "-lm")


def compiler() -> str:
    """Path of the system's C compiler.  Raises HostError if there is none."""
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        raise HostError("there is no C compiler", hint="Install gcc or clang")
    return found


class NativeHost(PlanHost):
    """One loaded bundle.  Raises HostError if its C does not compile."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with reading("the section for C"):
            (build,) = self.bundle.manifest.section(TARGET).builds
            self._calls = _calls(self, build)
        folder = Path(tempfile.mkdtemp(prefix="tilewright-native-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        source, library = folder / "kernels.c", folder / "kernels.so"
        source.write_bytes(self.bundle.read(build.code))
        command = [compiler(), str(source), "-o", str(library), *FLAGS]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise HostError(
                f"the C compiler failed: {done.stderr.strip().splitlines()[-1:]}",
                hint="Report this: the code was generated",
            )
        self._library = ctypes.CDLL(str(library))

    def step(
        self, plan: int, number: int, step: Step, views: list[Array], extents: Sequence[int]
    ) -> None:
        slot, *numbers = self._calls[plan][number]
        tiles, *scalars = (number_at(n, extents) for n in numbers)
        given = (ctypes.c_long * len(scalars))(*scalars)
        addresses = [v.ctypes.data for v in views] + [ctypes.addressof(given)]
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        function = self._library[f"k{slot}"]
        if told := function(pointers, ctypes.c_long(0), ctypes.c_long(tiles)):
            index = ctypes.c_long.in_dll(self._library, "index_found").value
            raise OutOfRange(told - 1, index)


def _calls(host: PlanHost, build: BuildEntry) -> list[list[list[PlanNumber]]]:
    """For each plan and step its slot and numbers, with as many steps as the plan has.  Raises
    ValueError."""
    kind = list[list[PlanNumber]]
    made = [parse(host.bundle.read(ref), kind, "a plan for C") for ref in build.plans]
    for calls, plan in zip(made, host.bundle.manifest.plans, strict=True):
        if len(calls) != len(plan.steps) or not all(calls):
            raise ValueError("a plan for C has another number of steps")
    return made
