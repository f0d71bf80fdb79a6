"""How elastic workers look for tiles, by the text itself on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.budget import UNLIMITED
from tilewright.hosts.cuda_on_cpu import Kernels
from tilewright.targets.cuda.prelude import prelude
from tilewright.targets.ticket_protocol import TURNS

WALK = """
extern "C" __global__ void walk(unsigned budget, unsigned places, unsigned *visits) {
  const unsigned step = step_of(budget, places);
  for (unsigned start = 0; start < places; start++) {
    unsigned place = start;
    for (unsigned n = 0; n < places; n++, place = onward(place, step, places))
      visits[start * places + place]++;
  }
}
"""


@pytest.mark.seldom(4)
def test_a_search_visits_each_place_once() -> None:
    kernels = Kernels("#define CUDA_ON_CPU\n" + prelude() + TURNS + WALK, {"walk": "walk"})
    for places in range(1, 14):
        for budget in (0, 1, 2, 5, places, UNLIMITED):
            for workers in (1, 3, 7, 20):
                visits = np.zeros((places, places), np.uint32)
                args = np.uint32(budget), np.uint32(places), visits
                kernels.run("walk", [workers], [1], args)
                assert (visits == workers).all(), (places, budget, workers)
