"""Elastic forms of foreign kernels on a GPU: workers are sent away while they run."""

from __future__ import annotations

import random
import time

import pytest
from test_transform_cpu import CASES, SOURCE

from tilewright.elastic.transform import transform
from tilewright.elastic.transform.cpu_trial import bits, copies
from tilewright.elastic.transform.gpu_trial import GpuTrial


@pytest.fixture(scope="module")
def trial() -> GpuTrial:
    made = transform(SOURCE.read_text(), SOURCE.name)
    return GpuTrial(made.text, {name: kernel for name, (kernel, _) in CASES.items()})


#: The order of atomics is open, and with it the last bits of a sum of doubles; here all are whole.
@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_foreign_kernels_sent_away_on_a_gpu(trial: GpuTrial, name: str) -> None:
    launch, rng = CASES[name][1], random.Random(3)
    plain = copies(launch)
    trial.plain(name, plain)

    def away() -> int:
        time.sleep(rng.uniform(0, 3e-5))
        return rng.randrange(3)

    for _ in range(20):
        given = copies(launch)
        trial.elastic(name, given, away)
        assert bits(given) == bits(plain)
