"""A model's chat template, which turns messages into the text of a prompt.

Input: the template of the file (Jinja2), messages.  Output: text, or a typed error.  A template is
untrusted code: it runs in Jinja2's sandbox, with limits on its steps, on the size of its results
and on its sums and products.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import FrameType
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from tilewright.base.errors import InputError, InvalidModel, of_kind

if TYPE_CHECKING:
    from collections.abc import Iterator

Message = Mapping[str, str]

#: Lines of the compiled template that one prompt may take, and characters that it may have.
MOST_STEPS, MOST_TEXT = 2_000_000, 1 << 24
#: Bits of a whole number.
MOST_BITS = 1 << 12


class _Refused(Exception):
    """The template itself refuses the messages (`raise_exception`)."""


class _TooMuch(Exception):
    """The template takes too many steps or makes too much text."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """Without sums, products and powers that fill the memory."""

    intercepted_binops = frozenset({"+", "*", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length()
            if (bits * abs(right) if operator == "**" else bits + right.bit_length()) > MOST_BITS:
                raise _TooMuch
        elif operator == "+":
            _check_size(sum(len(x) for x in (left, right) if isinstance(x, (str, list, tuple))))
        else:
            for text, times in ((left, right), (right, left)):
                if isinstance(text, (str, list, tuple)) and isinstance(times, int):
                    _check_size(len(text) * times)
        return super().call_binop(context, operator, left, right)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        made = _Joins().visit(super()._parse(source, name, filename))
        return of_kind(made, nodes.Template, "no template")


class _Answers(Extension):
    """`{% generation %}` around what a model wrote, which says nothing to us."""

    tags = {"generation"}  # noqa: RUF012, the type of the base class

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Joins(NodeTransformer):
    """`a ~ b` as a filter, which limits the size of the result."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        parts = [self.visit(part) for part in node.nodes]
        return nodes.Filter(
            nodes.List(parts), "concatenated", [], [], None, None, lineno=node.lineno
        )


def _concatenated(parts: Sequence[object]) -> str:
    texts = [str(part) for part in parts]
    _check_size(sum(map(len, texts)))
    return "".join(texts)


class ChatTemplate:
    """Raises InvalidModel if the text is not a valid template."""

    def __init__(self, source: str, texts: Mapping[str, str]) -> None:
        """texts: of tokens that templates name, such as `bos_token`"""
        environment = _Sandbox(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Answers]
        )
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
        environment.filters |= {"tojson": _json, "concatenated": _concatenated}
        self.source, self._texts = source, dict(texts)
        try:
            self._template = environment.from_string(source)
        except (TemplateError, RecursionError) as cause:
            raise InvalidModel(f"the chat template cannot be read: {cause}"[:200]) from cause

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt, up to where the answer begins.

        Raises InputError if the template refuses the messages, InvalidModel if it fails.
        """
        parts, size = [], 0
        try:
            with _watched():
                for part in self._template.generate(
                    messages=[dict(m) for m in messages], add_generation_prompt=True, **self._texts
                ):
                    size += len(part)
                    _check_size(size)
                    parts.append(part)
        except _Refused as refused:
            raise InputError(
                f"the model's chat template refuses these messages: {refused}",
                hint="Begin with a user's message, and let user and assistant take turns",
            ) from refused
        except (TemplateError, _TooMuch, TypeError, ValueError, ArithmeticError, LookupError,
                AttributeError, RecursionError, MemoryError) as cause:  # fmt: skip
            why = "it takes too long" if isinstance(cause, _TooMuch) else str(cause)
            raise InvalidModel(
                f"the model's chat template fails: {why}"[:200],
                hint="Generate without the template (without --chat), or use another file",
            ) from cause
        return "".join(parts)


@contextmanager
def _watched() -> Iterator[None]:
    """What runs inside is stopped after `MOST_STEPS` lines."""
    left, before = MOST_STEPS, sys.gettrace()

    def trace(_frame: FrameType, _event: str, _arg: object) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise _TooMuch
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def _check_size(size: int) -> None:
    if size > MOST_TEXT:
        raise _TooMuch


def _refuse(message: str) -> None:
    raise _Refused(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
