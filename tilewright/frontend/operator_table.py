"""The operator table: (domain, name, opset) -> the function that expresses it in tensor ops.

Input: `@operator(...)` on functions of operators/*.py.  Output: `find` and `Rule.apply`.
ONNX operands are positional parameters (None if left out), attributes keyword parameters with their
ONNX defaults.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tilewright.base.errors import (
    CompilerBug,
    InvalidModel,
    ModelLimit,
    ShapeError,
    TilewrightError,
    UnsupportedOp,
)
from tilewright.graph.node import Node

Results = tuple[Node, ...]
Function = TypeVar("Function", bound=Callable[..., Node | Sequence[Node]])

#: The keyword parameter in which a function gets the number of outputs that the model reads.
OUTPUTS = "outputs"


def typed(error: Exception, op: str) -> TilewrightError:
    """An exception that the function of an operator raised, as a typed error.  A typed error stays
    as it is.

    Functions raise typed errors for operands that do not match.  So any other exception is a bug of
    ours.
    """
    if isinstance(error, TilewrightError):
        return error
    if isinstance(error, MemoryError):
        return ModelLimit(f"{op} needs more memory than there is", hint="Check the shapes")
    return CompilerBug(
        f"the rule of {op} failed: {type(error).__name__}: {error}"[:300],
        hint="Report it with the model's node",
    )


@dataclass(frozen=True)
class OperatorRule:
    """How one operator is written from opset `since` on.

    attributes: a key of `KINDS` for each attribute's name;  required: the attributes without a
                default
    counted: whether the function takes the number of outputs that the model reads
    least, most: limits of the number of operands; most is None if there is no limit
    """

    name: str
    since: int
    function: Callable[..., Node | Sequence[Node]]
    attributes: Mapping[str, str]
    required: frozenset[str]
    ignored: frozenset[str]
    ranks: tuple[int | None, ...]
    counted: bool
    least: int
    most: int | None

    def apply(
        self, operands: Sequence[Node | None], attributes: Mapping[str, object], outputs: int
    ) -> Results:
        """The operator's results.

        Raises InvalidModel for too few operands and for attributes of another type, UnsupportedOp
        for unknown attributes, and what the function raises.
        """
        keywords = {k: v for k, v in attributes.items() if k not in self.ignored}
        self._check(operands, keywords)
        if self.counted:
            keywords[OUTPUTS] = outputs
        made = self.function(*operands, **keywords)
        results = (made,) if isinstance(made, Node) else tuple(made)
        if len(results) < outputs:
            raise UnsupportedOp(
                f"output {len(results) + 1} of {self.name} is not supported",
                hint="Export the model without using it",
            )
        return results

    def _check(self, operands: Sequence[Node | None], keywords: Mapping[str, object]) -> None:
        for name, value in keywords.items():
            kind = self.attributes.get(name)
            if kind is None:
                raise UnsupportedOp(f"attribute {name} of {self.name} is not supported")
            what, fits = KINDS[kind]
            if not fits(value):
                raise InvalidModel(
                    f"attribute {name} of {self.name} must be {what}, but is {_described(value)}",
                    hint="The file is damaged, or its exporter is wrong: export the model again",
                    attribute=name,
                )
        missing = sorted(self.required - keywords.keys())
        if missing:
            raise InvalidModel(
                f"{self.name} has no attribute {missing[0]}, which it needs", attribute=missing[0]
            )
        given = len(operands)
        enough = given >= self.least and all(x is not None for x in operands[: self.least])
        if not enough or (self.most is not None and given > self.most):
            raise InvalidModel(f"{self.name} has a wrong number of operands ({given})")
        if self.most is None and any(x is None for x in operands):
            raise InvalidModel(f"an operand of {self.name} is left out")
        for at, (x, rank) in enumerate(zip(operands, self.ranks, strict=False)):
            if x is not None and rank not in (None, x.rank):
                raise ShapeError(
                    f"operand {at} of {self.name} must have {rank} axes, not {x.rank}",
                    shape=x.shape,
                )


def _all(kind: type | tuple[type, ...]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, tuple) and all(isinstance(v, kind) for v in value)


#: For each annotation of an attribute in an operator's function: its name in messages, and a test
#: of the attribute's value.
KINDS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "int": ("a whole number", lambda value: isinstance(value, int)),
    "float": ("a number", lambda value: isinstance(value, (int, float))),
    "str": ("text", lambda value: isinstance(value, str)),
    "Node": ("a tensor", lambda value: isinstance(value, Node)),
    "Sequence[int]": ("a list of whole numbers", _all(int)),
    "Sequence[float]": ("a list of numbers", _all((int, float))),
    "Sequence[str]": ("a list of texts", _all(str)),
}


def _described(value: object) -> str:
    """The first name in `KINDS` that fits, or the name of the type."""
    return next((what for what, fits in KINDS.values() if fits(value)), type(value).__name__)


_TABLE: dict[tuple[str, str], list[OperatorRule]] = {}


def operator(
    *names: str,
    since: int = 1,
    domain: str = "",
    ignore: Iterable[str] = (),
    ranks: Sequence[int | None] = (),
) -> Callable[[Function], Function]:
    """Registers a function for operators.

    ignore: attributes that do not change the result
    ranks:  the number of axes of each operand; None, or no entry: the function checks it itself
    """

    def register(function: Function) -> Function:
        for name in names:
            rows = _TABLE.setdefault((domain, name), [])
            rows.append(_rule(name, since, function, frozenset(ignore), tuple(ranks)))
            rows.sort(key=lambda rule: rule.since)
        return function

    return register


def _rule(
    name: str,
    since: int,
    function: Callable[..., Node | Sequence[Node]],
    ignored: frozenset[str],
    ranks: tuple[int | None, ...],
) -> OperatorRule:
    parameters = inspect.signature(function).parameters.values()
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != OUTPUTS]
    attributes = {p.name: p.annotation.removesuffix(" | None") for p in keywords}
    required = frozenset(p.name for p in keywords if p.default is p.empty)
    return OperatorRule(
        name, since, function, attributes, required, ignored, ranks,
        counted=any(p.name == OUTPUTS for p in parameters),
        least=sum(p.default is p.empty for p in positional),
        most=None if variadic else len(positional),
    )  # fmt: skip


def find(domain: str, name: str, opset: int) -> OperatorRule | None:
    """The newest rule that is not newer than the model's opset."""
    rows = _TABLE.get((domain, name), ())
    return next((rule for rule in reversed(rows) if rule.since <= opset), None)


def supported() -> dict[str, tuple[int, ...]]:
    """Every operator of the table with the first opset of each rule, for the docs."""
    return {
        f"{domain}.{name}" if domain else name: tuple(rule.since for rule in rows)
        for (domain, name), rows in sorted(_TABLE.items())
    }
