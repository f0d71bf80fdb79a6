"""Tuning beside inputs that a page fills in place: all buckets' plans work in the same memory."""

from __future__ import annotations

import numpy as np
import pytest

from .bundles import BERT_LENGTHS, Library
from .conftest import Visit
from .serving import serving
from .test_run import sentence
from .test_swap import kernels, plain

pytestmark = pytest.mark.by_turns


@pytest.mark.parametrize("amid", [False, True])
def test_inputs_of_several_buckets_survive(visit: Visit, library: Library, amid: bool) -> None:
    """No plan runs beside those of another, from the beginning or once the page asks for places."""
    with serving({"bert": library.path("bert")}) as site:
        page = visit(site.blank)
        known = kernels(page, site, library, "bert")
        sent = [k for s in known.specs("contract") for k in known.others(s, 1)]
        ask = {"url": site.bundle("bert"), "kernels": sent, "amid": amid}
        inputs = plain(sentence(BERT_LENGTHS[-1]))
        found = page.do("tuneBesideBuckets", **ask, inputs=inputs)
    for a, b in zip(found["found"], found["wanted"], strict=True):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-4)
    assert bool(found["trials"]) == amid
