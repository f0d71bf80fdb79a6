"""Named arrays in .npz files.

Input: a path, or arrays and an open file.  Output: arrays, or the file.  Pickled objects are
refused.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.numpy_scalars import Array

Arrays = Mapping[str, Array]
#: The comment of archives that Tilewright writes.
MARK = b"tilewright"
HOW = "Write it with numpy.savez(path, name=array, ...)"


def read_arrays(path: Path) -> dict[str, Array]:
    try:
        file = np.load(path, allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise InputError(f"{path} holds one array without a name", hint=HOW)
        with file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError as error:
        raise InputError(f"There is no file {path}", hint=HOW) from error
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not an .npz file of plain arrays", hint=HOW) from error


def write_arrays(file: BinaryIO, arrays: Arrays) -> None:
    """Writes arrays as numpy.savez does, with `MARK` as comment.  Unlike numpy.savez, it allows an
    array called "file"."""
    with zipfile.ZipFile(file, "w") as archive:
        archive.comment = MARK
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                given = np.asarray(array)
                # NumPy would lose the type bfloat16
                plain = given.view(np.uint16) if given.dtype.name == "bfloat16" else given
                np.lib.format.write_array(member, plain, allow_pickle=False)


def are_ours(path: Path) -> bool:
    """Whether `write_arrays` wrote the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.comment == MARK
    except zipfile.BadZipFile:
        return False
