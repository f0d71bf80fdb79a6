"""CUDA C++ on the CPU: compiles kernels with the system's compiler and runs them, for checking.

Input: the text of kernels.  Output: functions that run them on NumPy arrays.  Each thread of a
block is a fiber (threads.h); barriers, lanes, atomics and shared memory behave as on a GPU.  Times
here do not predict a GPU's.  Use it only for code that you trust: it runs inside this process.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tilewright.base.errors import HostError
from tilewright.base.numpy_scalars import Array
from tilewright.bundle.format import digest
from tilewright.hosts.cuda_tasks import CValue

HEADERS = Path(__file__).parent
#: The header with which texts begin; it includes the others.
HEADER = "cuda.h"

#: Signed integers wrap, products and sums are not contracted, and jumps between stacks are allowed.
FLAGS = (
    "-std=c++17", "-xc++", "-O1", "-fwrapv", "-ffp-contract=off", "-fno-strict-aliasing",
    "-U_FORTIFY_SOURCE", "-w", "-shared", "-fPIC", "-pthread",
)  # fmt: skip

#: Compiler flags that check indices.
BOUNDS = ("-fsanitize=bounds", "-fsanitize-undefined-trap-on-error")
ON_A_GPU = "Kernels that call CUDA's libraries or assembly run on a GPU alone"

#: extern __shared__ T name[];  ->  T *name, which points to the block's dynamic memory
_DYNAMIC = re.compile(
    r"extern\s+__shared__\s+(?P<align>(?:__align__|alignas)\s*\([^)]*\)\s*)?"
    r"(?P<type>[\w:<>\s]+?)\s*(?P<name>\b\w+)\s*\[\s*\]\s*;"
)


def compiler() -> str:
    """Path of the system's C++ compiler.  Raises HostError if there is none."""
    found = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if found is None:
        raise HostError("there is no C++ compiler", hint="Install g++ or clang")
    return found


#: Arguments of kernels: arrays, which are passed by address, and scalars that have an address.
CpuArgument: TypeAlias = "Array | np.generic | CValue"
#: The environment variable with a folder in which processes share compiled kernels.
KEPT = "TILEWRIGHT_COMPILED"


@cache
def headers() -> Path:
    """A folder with the precompiled headers: compiling them takes longer than compiling a
    kernel."""
    texts = [header.read_text() for header in sorted(HEADERS.glob("*.h"))]
    kept = _kept("headers", *texts)
    if kept and kept.exists():
        return kept
    folder = Path(tempfile.mkdtemp(prefix="tilewright-cuda-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for header in HEADERS.glob("*.h"):
        shutil.copy(header, folder)
    source = folder / HEADER
    flags = [flag for flag in FLAGS if flag not in ("-xc++", "-shared")]
    command = [compiler(), *flags, "-xc++-header", str(source), "-o", f"{source}.gch"]
    subprocess.run(command, capture_output=True)  # if it fails, kernels compile more slowly
    return _keep(folder, kept) if kept else folder


def _kept(kind: str, *parts: str) -> Path | None:
    """The path in the shared folder for the result of these inputs; None without a shared
    folder."""
    folder = os.environ.get(KEPT)
    if not folder:
        return None
    named = "\0".join([str(Path(compiler()).resolve()), *FLAGS, *parts])
    return Path(folder) / f"{kind}-{digest(named.encode())}"


def _keep(made: Path, kept: Path) -> Path:
    """Copies to a temporary name and renames it, so another process finds all of it or nothing."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(dir=kept.parent))
    copy = beside / made.name
    (shutil.copytree if made.is_dir() else shutil.copy)(made, copy)
    with suppress(OSError):  # another process was first
        copy.rename(kept)
    shutil.rmtree(beside, ignore_errors=True)
    return kept


class Kernels:
    """Compiled kernels.

    text:  CUDA C++;  names: the C++ name of each kernel ("scale", "scale<float>"), by any name
    bounds: the process ends if an index exceeds an array whose size the compiler knows
    folders: with the text's own headers

    Raises HostError if the text does not compile.
    """

    def __init__(
        self,
        text: str,
        names: Mapping[str, str],
        bounds: bool = False,
        folders: Sequence[Path] = (),
    ) -> None:
        folder = Path(tempfile.mkdtemp(prefix="tilewright-cuda-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        library = folder / "kernels.so"
        exports = "".join(f"CUDA_CPU_EXPORT({n}, {kernel})\n" for n, kernel in names.items())
        whole = f'#include "{HEADER}"\n{_DYNAMIC.sub(_pointer, text)}\n{exports}'
        options = BOUNDS if bounds else ()
        # A text with headers of its own is not cached: their contents are not part of the key.
        kept = None if folders else _kept("kernels", str(headers()), *options, whole)
        if kept and kept.exists():
            shutil.copy(kept, library)  # a copy each, since a library is loaded once per file
        else:
            _compile(whole, library, [*options, *(f"-I{path}" for path in (headers(), *folders))])
            if kept:
                _keep(library, kept)
        try:
            self._library = ctypes.CDLL(str(library))
        except OSError as error:
            missing = str(error).rpartition(": ")[2]
            raise HostError(f"the kernels cannot be loaded: {missing}", hint=ON_A_GPU) from error

    def run(
        self,
        name: str,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[CpuArgument],
        *,
        shared: int = 0,
        processors: int = 1,
    ) -> None:
        """Runs a kernel to its end.

        grid, block: up to three extents;  shared: bytes of dynamic shared memory
        args:        arrays (passed by address) and NumPy or ctypes scalars of the exact types
        processors:  blocks that run at the same time

        Raises HostError if threads deadlock.
        """
        shape = (ctypes.c_uint * 6)(*_three(grid), *_three(block))
        values = [_value(arg) for arg in args]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        function = self._library[f"run_{name}"]
        function.restype = ctypes.c_char_p
        wrong = function(shape, ctypes.c_size_t(shared), ctypes.c_uint(processors), pointers)
        if wrong:
            raise HostError(f"the kernel {name} does not end: {wrong.decode()}", hint="Report this")


def _compile(text: str, library: Path, options: Sequence[str]) -> None:
    source = library.with_name("kernels.cu")
    source.write_text(text)
    command = [compiler(), *FLAGS, *options, str(source), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        wrong = [line for line in done.stderr.splitlines() if "error" in line]
        raise HostError(
            f"the C++ compiler refuses the kernels: {(wrong or ['?'])[0]}", hint=ON_A_GPU
        )


def _pointer(found: re.Match[str]) -> str:
    kind, name = found["type"], found["name"]
    return f"{kind} *{name} = ({kind} *)cuda_cpu::dynamic();"


def _three(extents: Sequence[int]) -> list[int]:
    return [*extents, 1, 1][:3]


def _value(arg: CpuArgument) -> CValue:
    """An object with an address whose bytes are the parameter."""
    if isinstance(arg, np.ndarray):
        return ctypes.c_void_p(arg.ctypes.data)
    if isinstance(arg, np.generic):
        return (ctypes.c_char * arg.nbytes).from_buffer_copy(arg.tobytes())
    return arg
