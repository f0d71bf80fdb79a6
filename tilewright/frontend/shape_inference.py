"""ONNX's shape inference in a process of its own: for some nodes its library aborts or hangs.

Input: a model of one node.  Output: the model with the shapes that ONNX finds, or None.  The
process starts at the first call, and again if it died.  It runs this file too, which therefore
imports nothing of Tilewright.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from threading import Timer
from typing import IO

import onnx

#: Bytes of the length before each message.  An answer of length 0 means that ONNX refused the
#: model.
HEAD = 8
#: Seconds to wait for an answer: a node takes milliseconds, but the process may have to start
#: first.
LIMIT = 60.0
#: -P: the modules beside this file have names of the standard library's
PROGRAM = (sys.executable, "-P", __file__)


class ShapeInference:
    """A process that infers shapes; it ends with its `with` block, or with us.

    program: the command to start;  limit: seconds after which a process that has not answered is
             killed
    """

    def __init__(self, program: Sequence[str] = PROGRAM, limit: float = LIMIT) -> None:
        self._program, self._limit = program, limit
        self._hung = False
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ShapeInference:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def __call__(self, model: onnx.ModelProto) -> onnx.ModelProto | None:
        """The model with shapes; None if ONNX refuses it, aborts or does not answer in time.  After
        a timeout every call gives None at once, because a model may have many such nodes."""
        if self._hung:
            return None
        if self._process is None:
            self._process = subprocess.Popen(
                self._program,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        asked, told = self._process.stdin, self._process.stdout
        if asked is None or told is None:
            raise RuntimeError("the process has no pipes")
        late = Timer(self._limit, self._give_up, [self._process])
        late.start()
        try:
            _send(asked, model.SerializeToString())
            answer = _receive(told)
        except BrokenPipeError:
            answer = None
        finally:
            late.cancel()
        if answer is None:
            self._end()
        return onnx.ModelProto.FromString(answer) if answer else None

    def _give_up(self, process: subprocess.Popen[bytes]) -> None:
        self._hung = True
        process.kill()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            with suppress(BrokenPipeError):
                self._process.communicate()
            self._process = None


def _send(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(HEAD, "little") + data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes | None:
    """The next message; None if the other process has ended."""
    head = pipe.read(HEAD)
    size = int.from_bytes(head, "little")
    data = pipe.read(size) if len(head) == HEAD else b""
    return data if len(head) == HEAD and len(data) == size else None


def serve(asked: IO[bytes], told: IO[bytes]) -> None:
    """Answers requests until the other process closes the pipe."""
    while (data := _receive(asked)) is not None:
        try:
            found = onnx.shape_inference.infer_shapes(onnx.ModelProto.FromString(data))
            answer = found.SerializeToString()
        except Exception:  # ONNX's library may raise any class
            answer = b""
        _send(told, answer)


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
