"""Typed errors: every failure that a user can meet has a class, a stable code, facts and a hint.

Input: a message, a hint and facts (node, op, opset, dtype, shape, limit).  Output: an exception
with all of them in its text, and as JSON.  The browser engine uses the same codes.

`required`, `of_kind` and `ensure` check invariants inside Tilewright and raise `CompilerBug`.  They
make text from the facts only if a check fails, so a check that holds is cheap.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, TypeVar


class TilewrightError(Exception):
    """Base of all errors that Tilewright raises on purpose.

    code: stable and machine-readable;  exit_code: of the command line;  hint: what to do about it
    facts: where it happened (node, op, opset, dtype, shape, limit, path, ...); None is left out
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", **facts: object) -> None:
        self.message = message
        self.hint = hint
        self.facts = {k: v for k, v in facts.items() if v is not None}
        super().__init__(self.render())

    def render(self) -> str:
        """The whole text: message, facts in brackets, hint."""
        facts = ", ".join(f"{k}={v}" for k, v in self.facts.items())
        text = self.message + (f" [{facts}]" if facts else "")
        return f"{text}. {self.hint}" if self.hint else text

    def to_json(self) -> dict[str, object]:
        """The error as plain data, for `--json` and for the browser."""
        facts = {k: _plain(v) for k, v in self.facts.items()}
        return {"code": self.code, "message": self.message, "hint": self.hint, "facts": facts}


def _plain(value: object) -> object:
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return str(value)


class InvalidModel(TilewrightError):
    """The file is not a readable model: wrong format, truncated, or without its data."""

    code = "invalid-model"
    exit_code = 3


class UnsupportedOp(TilewrightError):
    """The model uses an operator, domain, opset or attribute that is not supported."""

    code = "unsupported-op"
    exit_code = 4


class UnsupportedDType(TilewrightError):
    """An element type that the operator or the target does not support."""

    code = "unsupported-dtype"
    exit_code = 4


class NotElastic(TilewrightError):
    """A CUDA source has no kernel that can stop between two tiles and be resumed."""

    code = "not-elastic"
    exit_code = 4


class ShapeError(TilewrightError):
    """Shapes that do not match, or a dimension without a value."""

    code = "shape"
    exit_code = 4


class ModelLimit(TilewrightError):
    """The model asks for more work or memory at compile time than base/model_limits.py allows."""

    code = "model-limit"
    exit_code = 4


class InputError(TilewrightError):
    """An input of a run is missing, unknown, or has the wrong dtype, rank or size."""

    code = "input"
    exit_code = 5


class ContextFull(InputError):
    """A language model's caches have no free row for the next token, or too few for a prompt."""

    code = "context-full"


class UsageError(TilewrightError):
    """An option or argument that cannot be used."""

    code = "usage"
    exit_code = 2


class NoSpace(UsageError):
    """A kernel has no schedules to try on a class of devices."""

    code = "no-space"


class BundleCorrupt(TilewrightError):
    """A bundle file is missing or its bytes do not match their digest."""

    code = "bundle-corrupt"
    exit_code = 6


class BundleVersion(TilewrightError):
    """The bundle has a format version that this program does not read."""

    code = "bundle-version"
    exit_code = 6


class MemoryLimit(TilewrightError):
    """The model needs more memory than the target or the device allows."""

    code = "memory-limit"
    exit_code = 7


class HostError(TilewrightError):
    """A host (browser, wasmtime, C compiler) is missing, failed to start, or died."""

    code = "host"
    exit_code = 8


class KernelTrap(TilewrightError):
    """A kernel stopped: for example a gather index outside its table."""

    code = "kernel-trap"
    exit_code = 8


class OutOfRange(KernelTrap):
    """A kernel that ran without a model stopped at an index.  Only the number of its check and the
    index are known, not the node."""

    def __init__(self, check: int, index: int) -> None:
        self.check, self.index = check, index
        super().__init__("an index is out of range", check=check, index=index)


class NotMeasured(TilewrightError):
    """A tuning session had too little time to measure what the command asked for."""

    code = "not-measured"
    exit_code = 11


class AdmissionRefused(TilewrightError):
    """A task or request is refused: its bound or deadline cannot be kept beside those already
    admitted."""

    code = "admission-refused"
    exit_code = 12


class TaskOverdue(TilewrightError):
    """A critical request did not end within its lease; normal work goes on without it."""

    code = "task-overdue"
    exit_code = 13


class PortInUse(TilewrightError):
    """The server's port is in use."""

    code = "port-in-use"
    exit_code = 9


class StoreError(TilewrightError):
    """The kernel database failed; the base of the classes below."""

    code = "store"
    exit_code = 10


class StoreDown(StoreError):
    """The database cannot be reached, or the connection to it broke."""

    code = "store-down"


class StoreLocked(StoreError):
    """The database was locked for longer than a writer waits."""

    code = "store-locked"


class StoreReadOnly(StoreError):
    """The database may be read, but not written."""

    code = "store-readonly"


class StoreFull(StoreError):
    """No space is left for the database."""

    code = "store-full"


class StoreCorrupt(StoreError):
    """The database is damaged, or not one of Tilewright's."""

    code = "store-corrupt"


class StoreVersion(StoreError):
    """The schema of the database is older or newer than this program's."""

    code = "store-version"


class StoreClock(StoreError):
    """No reports came for days, or the clock is ahead: old reports are not deleted."""

    code = "store-clock"


class InvalidReport(TilewrightError):
    """A report, or a row of an import, with values that an honest client does not send."""

    code = "invalid-report"
    exit_code = 5


class CompilerBug(TilewrightError):
    """An invariant inside the compiler does not hold; never the user's fault."""

    code = "compiler-bug"
    exit_code = 70


def one_of(names: Iterable[str]) -> str:
    """A hint that lists the names to choose from: "Choose one of a, b, c"."""
    return f"Choose one of {', '.join(names)}"


def unknown_name(what: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that is not in a table.

    what: the kind of name for the message, such as "host";  known: the names of the table
    """
    return UsageError(f"Unknown {what}: {name}", hint=one_of(known))


T = TypeVar("T")


def required(value: T | None, why: str, **facts: object) -> T:
    """The value if it is not None; else raises CompilerBug with the sentence `why`."""
    if value is None:
        raise CompilerBug(why, hint="", **facts)
    return value


def of_kind(value: object, kind: type[T], why: str, **facts: object) -> T:
    """The value if it is of this class; else raises CompilerBug with the sentence `why`."""
    if not isinstance(value, kind):
        raise CompilerBug(why, hint="", found=value, **facts)
    return value


def ensure(holds: bool, why: str, **facts: object) -> None:
    """Raises CompilerBug with the sentence `why` unless the condition holds."""
    if not holds:
        raise CompilerBug(why, hint="", **facts)
