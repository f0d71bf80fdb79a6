"""What the graphs of a language model compute, by their own meaning.

Input: a model, ids.  Output: logits of a padded prompt, and of one token after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.frontend.language import LOGITS, Decoder
from tilewright.graph.node import evaluate

#: What sums in f32 may differ from those in f64, of logits around 1.
CLOSE = 2e-5
#: Tokens of a prompt, in a bucket of eight, and those that follow.
PROMPT, AFTER = (3, 1, 4, 1, 5, 9), (2, 6, 5)


def logits(model: Decoder, ids: Sequence[int], after: Sequence[int]) -> list[np.ndarray[Any, Any]]:
    """By the graphs' own meaning: a padded prompt, then one token after the other."""
    caches = {name: np.zeros(n.shape, "f4") for name, n in model.graph().inputs[2:]}
    found, past = [], 0
    for part, rows in ((ids, 8), *(([token], 1) for token in after)):
        past += len(part)
        graph = model.graph({"n": rows})
        padded = np.zeros((1, rows), "i8")
        padded[0, : len(part)] = part
        given = {"input_ids": padded, "seqlens_k": np.array([past - 1], "i4"), **caches}
        made = evaluate([n for _, n in graph.outputs], given)
        results = dict(zip((name for name, _ in graph.outputs), made, strict=True))
        found.append(results[LOGITS].ravel())
        caches = {name: results[new] for name, new in model.states.items()}
    return found
