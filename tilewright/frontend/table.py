"""The operator table: (domain, name, opset) -> the function that expresses it in tensor ops.

Input: `@operator(...)` on functions of operators/*.py.  Output: `find` and `Rule.apply`.
ONNX operands are positional parameters (None if left out), attributes keyword parameters with their
ONNX defaults.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tilewright.base.errors import InvalidModel, ModelLimit, TilewrightError, UnsupportedOp
from tilewright.graph.node import Node

Results = tuple[Node, ...]
Function = TypeVar("Function", bound=Callable[..., Any])

#: The keyword parameter by which a function gets the number of outputs that the model uses.
OUTPUTS = "outputs"


#: What the functions of operators raise where a file gives them values that do not match.
MISMATCHES = (
    ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RuntimeError, MemoryError,
    StopIteration,
)  # fmt: skip


def typed(error: Exception, op: str) -> TilewrightError:
    """The typed error for one of `MISMATCHES`; a typed one stays as it is."""
    if isinstance(error, TilewrightError):
        return error
    if isinstance(error, MemoryError):
        return ModelLimit(f"{op} needs more memory than there is", hint="Check the shapes")
    return InvalidModel(f"operands and attributes of {op} do not match ({error})"[:300])


@dataclass(frozen=True)
class OperatorRule:
    """How one operator is written from opset `since` on."""

    name: str
    since: int
    function: Callable[..., Node | Sequence[Node]]
    attributes: frozenset[str]
    ignored: frozenset[str]
    least: int
    most: int | None

    def apply(
        self, operands: Sequence[Node | None], attributes: Mapping[str, Any], outputs: int
    ) -> Results:
        """The operator's results.

        Raises InvalidModel for too few operands, UnsupportedOp for unknown attributes, and one of
        `MISMATCHES` if values do not match.
        """
        keywords = {k: v for k, v in attributes.items() if k not in self.ignored}
        self._check(operands, keywords)
        if OUTPUTS in self.attributes:
            keywords[OUTPUTS] = outputs
        made = self.function(*operands, **keywords)
        results = (made,) if isinstance(made, Node) else tuple(made)
        if len(results) < outputs:
            raise UnsupportedOp(
                f"output {len(results) + 1} of {self.name} is not supported",
                hint="export the model without using it",
            )
        return results

    def _check(self, operands: Sequence[Node | None], keywords: Mapping[str, Any]) -> None:
        unknown = sorted(keywords.keys() - (self.attributes - {OUTPUTS}))
        if unknown:
            raise UnsupportedOp(f"attribute {unknown[0]} of {self.name} is not supported")
        given = len(operands)
        enough = given >= self.least and all(x is not None for x in operands[: self.least])
        if not enough or (self.most is not None and given > self.most):
            raise InvalidModel(f"{self.name} has a wrong number of operands ({given})")


_TABLE: dict[tuple[str, str], list[OperatorRule]] = {}


def operator(
    *names: str, since: int = 1, domain: str = "", ignore: Iterable[str] = ()
) -> Callable[[Function], Function]:
    """Registers a function for operators; ignore: attributes that do not change the result."""

    def register(function: Function) -> Function:
        for name in names:
            rows = _TABLE.setdefault((domain, name), [])
            rows.append(_rule(name, since, function, frozenset(ignore)))
            rows.sort(key=lambda rule: rule.since)
        return function

    return register


def _rule(
    name: str, since: int, function: Callable[..., Any], ignored: frozenset[str]
) -> OperatorRule:
    parameters = inspect.signature(function).parameters.values()
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    attributes = frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
    least = sum(p.default is p.empty for p in positional)
    return OperatorRule(
        name, since, function, attributes, ignored, least, None if variadic else len(positional)
    )


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
