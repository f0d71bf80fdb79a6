"""A model's chat template, which turns messages into the text of a prompt.

Input: the template of the file (Jinja2), messages.  Output: text, or a typed error.  A template is
untrusted code: it runs inside the limits of template_limits.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from jinja2 import TemplateError

from tilewright.base.errors import InputError, InvalidModel
from tilewright.language.template_limits import Sandbox, TooMuch, check_items, check_size, limited

Message = Mapping[str, str]

#: Spaces by which `tojson` may indent.
MOST_INDENT = 16


class _Refused(Exception):
    """The template itself refuses the messages (`raise_exception`)."""


class ChatTemplate:
    """Raises InvalidModel if the text is not a valid template."""

    def __init__(self, source: str, texts: Mapping[str, str]) -> None:
        """texts: of tokens that templates name, such as `bos_token`"""
        environment = Sandbox()
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
        environment.filters["tojson"] = _json
        self.source, self._texts = source, dict(texts)
        try:
            self._template = environment.from_string(source)
        except (TemplateError, SyntaxError, RecursionError, MemoryError, ValueError) as cause:
            raise InvalidModel(
                f"the chat template cannot be read: {cause}"[:200],
                hint="Generate without the template (without --chat), or use another file",
            ) from cause

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt, up to where the answer begins.

        Raises InputError if the template refuses the messages, InvalidModel if it fails.
        """
        parts = []
        try:
            with limited():
                for part in self._template.generate(
                    messages=[dict(m) for m in messages], add_generation_prompt=True, **self._texts
                ):
                    check_size(len(part))
                    parts.append(part)
        except _Refused as refused:
            raise InputError(
                f"the model's chat template refuses these messages: {refused}"[:300],
                hint="Begin with a user's message, and let user and assistant take turns",
            ) from refused
        except (TemplateError, TooMuch, TypeError, ValueError, ArithmeticError, LookupError,
                AttributeError, RecursionError, MemoryError) as cause:  # fmt: skip
            much = isinstance(cause, TooMuch)
            why = "it takes too long or makes too much text" if much else str(cause)
            raise InvalidModel(
                f"the model's chat template fails: {why}"[:200],
                hint="Generate without the template (without --chat), or use another file",
            ) from cause
        return "".join(parts)


def _refuse(message: str) -> None:
    raise _Refused(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _json(value: object, indent: int | None = None) -> str:
    check_items(value)
    spaces = None if indent is None else min(indent, MOST_INDENT)
    made = json.dumps(value, ensure_ascii=False, indent=spaces)
    check_size(len(made))
    return made
