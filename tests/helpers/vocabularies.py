"""Small vocabularies of both kinds for GGUF files, and how they cut text, written down plainly.

Input: nothing, or a text.  Output: what a writer adds to a file; ids.  The plain versions follow
the definitions step by step and are slow.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from gguf import GGUFWriter, TokenType

NORMAL, UNKNOWN, CONTROL, BYTE = (
    TokenType.NORMAL, TokenType.UNKNOWN, TokenType.CONTROL, TokenType.BYTE
)  # fmt: skip
SPACE = "▁"

#: Jinja2 as models have it: each message with its role, then where the answer begins.
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Pieces:
    """A SentencePiece vocabulary: tokens with scores."""

    texts: tuple[str, ...]
    scores: tuple[float, ...]
    kinds: tuple[int, ...]

    def write(self, writer: GGUFWriter) -> None:
        writer.add_tokenizer_model("llama")
        writer.add_token_list(list(self.texts))
        writer.add_token_scores(list(self.scores))
        writer.add_token_types(list(self.kinds))
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)

    def ids(self, text: str) -> list[int]:
        """Neighbours that are a token together are merged, the one of the best score first, of
        equal ones the leftmost; what is no token falls into its bytes."""
        numbers = {t: n for n, t in enumerate(self.texts)}
        parts = list((SPACE + text).replace(" ", SPACE)) if text else []
        while True:
            pairs = [(-self.scores[numbers[a + b]], at) for at, (a, b) in
                     enumerate(pairwise(parts)) if a + b in numbers]  # fmt: skip
            if not pairs:
                break
            _, at = min(pairs)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        found = [1]
        for part in parts:
            named = [f"<0x{b:02X}>" for b in part.encode()]
            found += [numbers[part]] if part in numbers else [numbers[t] for t in named]
        return found


def pieces() -> Pieces:
    """Bytes, letters, and what merges of a few words give."""
    words = ["▁the", "▁cat", "▁sat", "▁on", "▁a", "▁mat", "that", "rat", "ation", "▁nation", "▁▁▁▁",
             "éé", "ing"]  # fmt: skip
    parts = dict.fromkeys(SPACE + "abcdefghijklmnopqrstuvwxyz.,é")
    grown = [w[:n] for w in words for n in range(2, len(w) + 1)]
    ends = [w[n:] for w in words for n in range(1, len(w) - 1)]
    merged = list(dict.fromkeys([*grown, *ends]))
    singles = [*parts]
    merged = [m for m in merged if m not in parts]
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *merged, *singles]
    scores = [0.0] * 259 + [-float(n) for n in range(len(merged))] + [-1e6] * len(singles)
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * (len(merged) + len(singles))
    return Pieces(tuple(texts), tuple(scores), tuple(map(int, kinds)))


@dataclass(frozen=True)
class Merges:
    """A vocabulary of bytes that are merged in pairs; the last tokens are control tokens."""

    texts: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]
    special: tuple[str, ...]
    pre: str = "smollm"

    def write(self, writer: GGUFWriter) -> None:
        count = len(self.texts) - len(self.special)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(self.pre)
        writer.add_token_list(list(self.texts))
        writer.add_token_types([int(NORMAL)] * count + [int(CONTROL)] * len(self.special))
        writer.add_token_merges([" ".join(pair) for pair in self.merges])
        writer.add_eos_token_id(len(self.texts) - 1)
        writer.add_chat_template(TEMPLATE)

    def ids(self, text: str) -> list[int]:
        """Of text without control tokens: words as the expressions cut them, then merges."""
        numbers, ranks = {t: n for n, t in enumerate(self.texts)}, _ranks(self.merges)
        found = []
        for word in _words(text):
            parts = [CHARACTERS[b] for b in word.encode()]
            while heap := [(ranks[p], at) for at, p in enumerate(pairwise(parts))
                           if p in ranks]:  # fmt: skip
                _, at = heapq.nsmallest(1, heap)[0]
                parts[at : at + 2] = [parts[at] + parts[at + 1]]
            found += [numbers[p] for p in parts]
        return found


def _ranks(merges: tuple[tuple[str, str], ...]) -> dict[tuple[str, str], int]:
    return {pair: n for n, pair in enumerate(merges)}


def _characters() -> list[str]:
    """The printable character of each byte, as GPT-2 chose them."""
    shown = set(range(33, 127)) | set(range(161, 173)) | set(range(174, 256))
    found, extra = [], 256
    for byte in range(256):
        found.append(chr(byte if byte in shown else extra))
        extra += byte not in shown
    return found


CHARACTERS = _characters()
_SHORT = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")


def _words(text: str) -> Iterator[str]:
    """GPT-2's words by hand, of text where each digit stands alone."""
    at = 0
    while at < len(text):
        short = next((s for s in _SHORT if text.startswith(s, at)), None)
        if text[at].isdecimal():
            end = at + 1
        elif short:
            end = at + len(short)
        else:
            end = _run(text, at)
        yield text[at:end]
        at = end


def _run(text: str, at: int) -> int:
    """The end of a run of letters, of signs, or of spaces without the last, which joins a word."""
    begin = at + 1 if text[at] == " " and at + 1 < len(text) else at
    if not text[begin].isspace() and not text[begin].isdecimal():
        letters = text[begin].isalpha()
        end = begin
        while end < len(text) and not text[end].isspace() and not text[end].isdecimal():
            if text[end].isalpha() != letters:
                break
            end += 1
        return end
    end = at
    while end < len(text) and text[end].isspace():
        end += 1
    before_word = end < len(text) and not text[end].isdecimal()
    return end - 1 if before_word and end - at > 1 else end


def merges(pre: str = "smollm") -> Merges:
    """Bytes, and merges that make a few words."""
    words = ["Ġthe", "Ġcat", "Ġis", "hello", "Ġhello", "ing", "Ã©", "ð", "ĊĊ", "Ġ1", "ĠĠĠĠ"]
    pairs, known = [], set(CHARACTERS)
    for word in words:
        for n in range(2, len(word) + 1):
            if word[:n] not in known:
                pairs.append((word[: n - 1], word[n - 1]))
                known.add(word[:n])
    special = ("<|im_start|>", "<|im_end|>")
    texts = (*CHARACTERS, *(a + b for a, b in pairs), *special)
    return Merges(texts, tuple(pairs), special, pre)
