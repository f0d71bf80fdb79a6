"""Names of control tokens in texts: those of a chat template mean the tokens, a user's are words.

Input: messages, and the prompt that a template makes of them.  Output: texts in which both kinds
differ.  A name in a message begins with a stand-in, a character that the chat does not have, while
the template runs.  Then each name that is left becomes a seal, and the stand-ins characters again.
web/language/control_tokens.js takes the same steps.  It cuts no text; see vocabulary.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from tilewright.base.errors import InputError

#: Around the number of a seal: code points that Unicode reserves for use inside of programs.
OPEN, CLOSE = "\ufdd0", "\ufdd1"
_SEAL = re.compile(f"{OPEN}[0-9]+{CLOSE}")
#: Code points of stand-ins: Unicode's areas for private use.
PRIVATE = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
#: Characters by the code points of their stand-ins, as `str.translate` takes them.
StandIns = Mapping[int, str]


def seal(token: int) -> str:
    """What the tokenizer reads as this control token."""
    return f"{OPEN}{token}{CLOSE}"


class ControlTokens:
    """Of one vocabulary."""

    def __init__(self, names: Mapping[str, int], words: Iterable[str] = ()) -> None:
        """names: ids of control tokens;  words: other texts that the tokenizer keeps whole"""
        self._seals = {word: word for word in words} | {n: seal(i) for n, i in names.items()}
        self._seals.pop("", None)
        self._names = names.keys() - {""}
        self._head = min(map(len, self._seals), default=1)
        self._lengths: dict[str, list[int]] = {}
        for text in sorted(self._seals, key=len, reverse=True):
            lengths = self._lengths.setdefault(text[: self._head], [])
            if len(text) not in lengths:
                lengths.append(len(text))
        firsts = "".join(sorted({text[0] for text in self._seals}))
        self._firsts = re.compile(f"[{re.escape(firsts)}]" if firsts else "(?!)")

    def sealed(self, text: str) -> str:
        """The text with seals for names.  Raises InputError for a text with a seal of its own."""
        if _SEAL.search(text):
            raise InputError(
                "the text has marks that only this program writes: U+FDD0, a number and U+FDD1",
                hint="Remove them: Unicode does not use these characters in texts",
            )
        parts, done = [], 0
        for at, name in self._found(text):
            if at >= done:
                parts += [text[done:at], self._seals[name]]
                done = at + len(name)
        return "".join([*parts, text[done:]])

    def hidden(
        self, messages: Sequence[Mapping[str, str]], template: str
    ) -> tuple[Sequence[Mapping[str, str]], StandIns]:
        """The messages with stand-ins, which neither they nor the template have.

        Raises InputError if every character for private use is taken.
        """
        texts = [text for message in messages for text in message.values()]
        places = {text: [at for at, name in self._found(text) if name in self._names]
                  for text in dict.fromkeys(texts)}  # fmt: skip
        firsts = dict.fromkeys(text[at] for text, found in places.items() for at in found)
        if not firsts:
            return messages, {}
        used = set(template).union(*texts)
        free = (number for number in chain(*PRIVATE) if chr(number) not in used)
        stand_ins = dict(zip(firsts, free, strict=False))
        if len(stand_ins) < len(firsts):
            raise InputError(
                "the messages have all characters that Unicode has for private use",
                hint="Remove some of them",
            )

        def hide(text: str) -> str:
            letters = list(text)
            for at in places[text]:
                letters[at] = chr(stand_ins[text[at]])
            return "".join(letters)

        shown = [{key: hide(text) for key, text in message.items()} for message in messages]
        return shown, {number: first for first, number in stand_ins.items()}

    def _found(self, text: str) -> Iterator[tuple[int, str]]:
        """Each place where names or words begin, with each of them, the longest one first."""
        for first in self._firsts.finditer(text):
            at = first.start()
            for length in self._lengths.get(text[at : at + self._head], ()):
                if (name := text[at : at + length]) in self._seals:
                    yield at, name
