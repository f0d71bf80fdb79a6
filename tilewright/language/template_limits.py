"""Limits on what a chat template, which is untrusted code, may compute.

Input: a template's text.  Output: a compiled template of Jinja2's sandbox, and `limited`, inside
which it runs: its steps, its processor time, the sizes of its texts and lists, and all texts
together are bounded.  It knows no messages, and it makes no errors for users.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from types import FrameType
from typing import Any, TypeGuard

from jinja2 import nodes, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from tilewright.base.errors import of_kind

#: Lines of the compiled template that one prompt may take, and seconds of processor time.
MOST_STEPS, MOST_SECONDS = 2_000_000, 10.0
#: Characters of one text, of all texts that are made, and of texts and lists inside a list.
MOST_TEXT, MOST_MADE, MOST_ITEMS = 1 << 24, 1 << 28, 1 << 20
#: Bits of a whole number; digits of a width in a format.
MOST_BITS, MOST_DIGITS = 1 << 12, 4
#: Lines between looks at the clock.
OFTEN = 64

#: Filters and methods that fill or search texts, which templates do without; the page has none.
NO_FILTERS = (
    "batch", "center", "pprint", "slice", "striptags", "urlize", "wordwrap", "xmlattr",
)  # fmt: skip
NO_METHODS = (
    "center",
    "encode",
    "expandtabs",
    "format_map",
    "ljust",
    "rjust",
    "translate",
    "zfill",
)
WIDE = re.compile(rf"\d{{{MOST_DIGITS},}}|\*|\{{[^}}]*\{{")


class TooMuch(Exception):
    """The template takes too many steps or makes too much text."""


class _Budget:
    """What is left.  characters: of all texts"""

    def __init__(self) -> None:
        self.characters, self.steps = MOST_MADE, MOST_STEPS
        self.end = time.thread_time() + MOST_SECONDS

    def trace(self, frame: FrameType, _event: str, _arg: object) -> Any:
        if frame.f_code.co_filename == __file__:
            return None  # limits do not count themselves
        self.steps -= 1
        if self.steps < 0 or (self.steps % OFTEN == 0 and time.thread_time() > self.end):
            raise TooMuch
        return self.trace


_budget: ContextVar[_Budget] = ContextVar("budget")


@contextmanager
def limited() -> Generator[None]:
    """What runs inside raises TooMuch at a limit."""
    budget, before = _Budget(), sys.gettrace()
    token = _budget.set(budget)
    sys.settrace(budget.trace)
    try:
        yield
    finally:
        sys.settrace(before)
        _budget.reset(token)


def check_size(size: int) -> None:
    """A text or list of this size is made.  Raises TooMuch."""
    budget = _budget.get()
    budget.characters -= size
    if size > MOST_TEXT or budget.characters < 0 or time.thread_time() > budget.end:
        raise TooMuch


def check_items(value: object) -> int:
    """The number of characters and items in a value; what is in it twice counts twice.

    Raises TooMuch.
    """
    items, characters = 0, 0
    level: list[object] = [value]
    while level:
        characters += sum(len(x) for x in level if isinstance(x, str))
        inside = [x for x in level if _holds(x)]
        items += len(level)
        if items + sum(map(len, inside)) > MOST_ITEMS or characters > MOST_TEXT:
            raise TooMuch
        level = [y for x in inside for y in (*x, *(x.values() if isinstance(x, Mapping) else ()))]
    return items + characters


def _holds(value: object) -> TypeGuard[Collection[object]]:
    return isinstance(value, Collection) and not isinstance(value, (str, bytes, range))


def _top(value: object) -> int:
    return len(value) if isinstance(value, (str, list, tuple)) else 0


# ---- operations ----------------------------------------------------------------------------------


def _check_binary(operator: str, left: Any, right: Any) -> None:
    if operator == "%":
        if isinstance(left, str):
            _check_format(left, "%", (right,))
    elif isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length()
        if (bits * abs(right) if operator == "**" else bits + right.bit_length()) > MOST_BITS:
            raise TooMuch
    elif operator == "+":
        if isinstance(left, (str, list, tuple)):
            check_size(check_items((left, right)))
    else:
        for text, times in ((left, right), (right, left)):
            if isinstance(text, (str, list, tuple)) and isinstance(times, int):
                check_size(check_items(text) * max(times, 0))


def _check_format(text: str, sign: str, values: Collection[object]) -> None:
    """A format has no wide fields, and its fields together are short."""
    if WIDE.search(text):
        raise TooMuch
    check_size(len(text) + text.count(sign) * max(map(check_items, values), default=0))


def _check_method(name: str, text: str, given: tuple[Any, ...]) -> None:
    size = len(text)
    if name == "format":
        _check_format(text, "{", given)
    elif name == "replace" and len(given) > 1 and all(isinstance(x, str) for x in given[:2]):
        check_size(size + text.count(given[0]) * len(given[1]))
    elif name == "join" and given and isinstance(given[0], Collection):
        check_size(check_items(given[0]) + len(given[0]) * size)
    else:
        check_size(size)


def _joined(made: Callable[..., Any]) -> Callable[..., Any]:
    """The filter `join`, whose result is bounded before it is made."""

    @wraps(made)
    def bounded(context: Any, values: Any, d: str = "", attribute: Any = None) -> Any:
        values = list(values)
        check_size(check_items(values) + len(values) * _top(d))
        return made(context, values, d, attribute)

    return bounded


def _counted(made: Callable[..., Any]) -> Callable[..., Any]:
    """A filter, of which each call counts what it is given."""

    @wraps(made)
    def bounded(*given: Any, **more: Any) -> Any:
        check_size(sum(map(_top, (*given, *more.values()))))
        return made(*given, **more)

    return bounded


def _bounded(value: Any) -> Any:
    check_items(value)
    return value


@pass_context
def _shown(_context: object, value: Any) -> Any:
    """What is written.  It needs a context, so that nothing is computed before a run."""
    check_size(check_items(value))
    return value


def _concatenated(parts: Collection[object]) -> str:
    check_size(check_items(parts))
    texts = [str(part) for part in parts]
    return "".join(texts)


def _replaced(text: object, old: object, new: object, count: int | None = None) -> str:
    text, old, new = str(text), str(old), str(new)
    _check_method("replace", text, (old, new))
    return text.replace(old, new, -1 if count is None else count)


def _indented(text: object, width: Any = 4, first: bool = False, blank: bool = False) -> str:
    text, space = str(text), width if isinstance(width, str) else " " * min(int(width), MOST_TEXT)
    check_size(len(text) + (text.count("\n") + 1) * len(space))
    first_line, *rest = text.splitlines() or [""]
    lines = [space + line if line or blank else line for line in rest]
    return "\n".join([space + first_line if first else first_line, *lines])


def _formatted(text: object, *values: Any, **named: Any) -> str:
    _check_format(str(text), "%", (*values, *named.values()))
    return str(text) % (named or values)


class _Names(Namespace):
    """`namespace`, which does not show its values: each may be in it several times."""

    def __repr__(self) -> str:
        return "<Namespace>"


# ---- the sandbox ---------------------------------------------------------------------------------


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja2's sandbox, in which each operation is bounded."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Answers],
            optimized=False, finalize=_shown,
        )  # fmt: skip
        self.globals["namespace"] = _Names
        del self.globals["lipsum"]
        named = {"replace": _replaced, "indent": _indented, "format": _formatted}
        kept = {name: f for name, f in self.filters.items() if name not in NO_FILTERS}
        kept["join"] = _joined(kept["join"])
        self.filters = {name: _counted(f) for name, f in (kept | named).items()}
        self.filters |= {"concatenated": _concatenated, "bounded": _bounded}

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        _check_binary(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        method = getattr(__obj, "__wrapped__", __obj)  # `format` comes wrapped
        text, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if isinstance(text, str):
            _check_method(name, text, (*args, *kwargs.values()))
        check_size(sum(map(_top, args)))
        check_items((args, kwargs))
        return super().call(__context, __obj, *args, **kwargs)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(argument, slice):
            check_size(_top(obj))
        return super().getitem(obj, argument)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str) and attr in NO_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        made = _Limits().visit(super()._parse(source, name, filename))
        return of_kind(made, nodes.Template, "no template")


class _Answers(Extension):
    """`{% generation %}` around what a model wrote, which says nothing to us."""

    tags = {"generation"}  # noqa: RUF012, the type of the base class

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Limits(NodeTransformer):
    """`a ~ b` and lists as filters, which bound the results."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        parts = [self.visit(part) for part in node.nodes]
        return _filtered("concatenated", nodes.List(parts), node)

    def visit_List(self, node: nodes.List) -> nodes.Node:
        return _filtered("bounded", self.generic_visit(node), node)

    visit_Dict = visit_List

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        made = self.generic_visit(node)
        return _filtered("bounded", made, node) if node.ctx == "load" else made


def _filtered(name: str, value: nodes.Node, at: nodes.Node) -> nodes.Node:
    return nodes.Filter(value, name, [], [], None, None, lineno=at.lineno)
