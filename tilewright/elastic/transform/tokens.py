"""A CUDA source as preprocessing tokens, before any macro is expanded.

Input: the bytes of a file.  Output: its tokens, its directives, and places where the compiler may
read the text differently from the parser.  Nothing is expanded.  The time is linear in the size of
the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tilewright.base.errors import required

#: The greatest nesting of brackets; compilers have such limits, too.
DEEPEST = 200
#: Signs that end a statement, or begin or end a block.
STRUCTURE = frozenset({"{", "}", ";"})
_TOKEN = re.compile(
    r"(?P<space>[ \t\f\v]+)"
    r"|(?P<newline>\r?\n)"
    r"|(?P<splice>\\\r?\n)"
    r"|(?P<line>//(?:[^\\\n]|\\\r?\n|\\)*)"
    r"|(?P<block>/\*)"
    r'|(?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^ ()\\\t\v\f\r\n"]{0,16})\()'
    r'|(?P<string>(?:u8|[uUL])?"(?:[^"\\\r\n]|\\\r\n|\\(?:.|\n))*")'
    r"|(?P<char>(?:u8|[uUL])?'(?:[^'\\\r\n]|\\\r\n|\\(?:.|\n))*')"
    r"|(?P<word>[A-Za-z_$\x80-\xff][\w$\x80-\xff]*)"
    r"|(?P<number>\.?[0-9](?:[eEpP][+-]|'[0-9A-Za-z_]|[0-9A-Za-z_.$\x80-\xff])*)"
    r"|(?P<sign>%:%:|%:|<(?=::[^:>])|<%|<:|%>|:>|<<<|>>>|\.\.\.|<=>|<<=|>>=|->\*|\.\*|->|::|\+\+"
    r"|--|<<|>>|[-+*/%&|^=!<>]=|&&|\|\||\#\#|[-+*/%&|^=!<>~?:;,.(){}\[\]\#])"
    r"|(?P<other>.)",
    re.ASCII,
)
_DIGRAPHS = frozenset({"%:%:", "%:", "<%", "<:", "%>", ":>"})
_TRIGRAPH = re.compile(r"\?\?[=/'()!<>-]")
_PROSE = frozenset({"error", "warning", "include", "pragma", "line"})
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_BREAKS_WORD = re.compile(r"[\w$\x80-\xff.]\\\r?\n[\w$\x80-\xff.]", re.ASCII)
_BREAKS_SIGN = re.compile(r"[-+*/%&|^=!<>?:#.\"'L]\\\r?\n[-+*/%&|^=!<>?:#.\"']")


class Token(NamedTuple):
    """kind: word, number, string, raw, char or sign;  start, end: bytes of the file"""

    kind: str
    text: str
    start: int
    end: int


class Directive(NamedTuple):
    """A line that begins with #;  name: "define" or the like;  tokens: after the name"""

    name: str
    tokens: tuple[Token, ...]
    start: int
    end: int


class Problem(NamedTuple):
    """Why the text is not parsed, and where."""

    at: int
    why: str


@dataclass(frozen=True)
class Lexed:
    """tokens: of the code, without those of directives;  problems: in the order of the text"""

    tokens: tuple[Token, ...]
    directives: tuple[Directive, ...]
    problems: tuple[Problem, ...]
    starts: tuple[int, ...]

    @cached_property
    def lines(self) -> list[int]:
        """The start of each directive."""
        return [directive.start for directive in self.directives]

    def between(self, start: int, end: int) -> tuple[Token, ...]:
        return self.tokens[bisect_left(self.starts, start) : bisect_left(self.starts, end)]


def lexed(text: bytes) -> Lexed:
    code = text.decode("latin-1")
    problems: list[Problem] = []
    rows = _rows(code, problems)
    tokens: list[Token] = []
    directives = []
    for row in rows:
        if row[0].text == "#":
            name = row[1].text if len(row) > 1 else ""
            directives.append(Directive(name, tuple(row[2:]), row[0].start, row[-1].end))
        else:
            tokens += row
    problems += [*_deep(tokens), *_halves(directives)]
    problems.sort()
    return Lexed(
        tuple(tokens), tuple(directives), tuple(problems), tuple(token.start for token in tokens)
    )


def _rows(code: str, problems: list[Problem]) -> Iterator[list[Token]]:
    """The tokens of each logical line that has any."""
    row: list[Token] = []
    at = 0
    while at < len(code):
        found = required(_TOKEN.match(code, at), "no token begins here", position=at)
        kind, end = found.lastgroup or "", found.end()
        if kind == "delimiter":
            kind = "raw"
        if kind in ("block", "raw"):
            closed = "*/" if kind == "block" else f'){found["delimiter"]}"'
            close = code.find(closed, end)
            if close < 0:
                problems.append(Problem(at, "a comment or string has no end"))
                break
            end = close + len(closed)
        if kind == "newline":
            if row:
                yield row
            row = []
        elif kind == "splice":
            around = code[max(at - 1, 0) : end + 1]
            if _BREAKS_WORD.fullmatch(around) or _BREAKS_SIGN.fullmatch(around):
                problems.append(Problem(at, "a line ends within a name or a sign"))
        elif kind not in ("space", "line", "block"):
            text = code[at:end]
            prose = len(row) > 1 and row[0].text == "#" and row[1].text in _PROSE
            if not prose and (why := _odd(kind, text, code, at)):
                problems.append(Problem(at, why))
            row.append(Token(kind, text, at, end))
        elif kind == "line" and _splits(code[at:end]):
            problems.append(Problem(at, "??/ at the end of a line"))
        at = end
    if row:
        yield row


def _splits(comment: str) -> bool:
    """True if old compilers take the next line as part of the comment."""
    return comment.rstrip("\r").endswith("??/")


def _odd(kind: str, text: str, code: str, at: int) -> str:
    if kind == "other":
        if text in "\"'":
            return "a quotation mark has no other"
        return "a character that no source has, or a name written by its number"
    if kind == "sign" and text in _DIGRAPHS:
        return f'a sign is spelled "{text}": write the usual one'
    if text == "?" and _TRIGRAPH.match(code, at):
        return "three characters that some compilers take for one"
    if kind == "word" and not text.isascii():
        return "a name with letters beyond ASCII"
    if kind in ("string", "char") and re.search(r"\?\?/\r?\n", text):
        return "??/ at the end of a line"
    return ""


def _deep(tokens: Sequence[Token]) -> Iterator[Problem]:
    depth = 0
    for token in tokens:
        if token.kind == "sign":
            depth += (token.text in _OPENING) - (token.text in _CLOSING)
            if depth > DEEPEST:
                yield Problem(token.start, f"brackets in more than {DEEPEST} others")
                return


def _halves(directives: Sequence[Directive]) -> Iterator[Problem]:
    """Conditionals without an end, and ends without a start."""
    pending: list[Directive] = []
    for directive in directives:
        if directive.name in ("if", "ifdef", "ifndef"):
            pending.append(directive)
        elif directive.name == "endif":
            if not pending:
                yield Problem(directive.start, "a conditional ends that has no begin")
                return
            pending.pop()
    if pending:
        yield Problem(pending[-1].start, "a conditional has no end")


def balanced(tokens: Sequence[Token]) -> bool:
    """True if all brackets are balanced."""
    pairs = {")": "(", "]": "[", "}": "{"}
    pending: list[str] = []
    for token in tokens:
        if token.text in _OPENING:
            pending.append(token.text)
        elif token.text in _CLOSING and (not pending or pending.pop() != pairs[token.text]):
            return False
    return not pending


def closing(tokens: Sequence[Token], at: int) -> int:
    """The position of the bracket that closes `tokens[at]`; the number of tokens if there is
    none."""
    depth = 0
    for number in range(at, len(tokens)):
        text = tokens[number].text
        depth += (text in _OPENING) - (text in _CLOSING)
        if depth == 0:
            return number
    return len(tokens)
