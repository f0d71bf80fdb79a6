"""Which schedules products on GPUs start with (targets/gpu/product/cost_model.py)."""

from __future__ import annotations

from random import Random

import pytest

from lab.subjects import product_kernel
from tilewright.kernel.spec import Kernel
from tilewright.targets import target
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.product.cost_model import cycles
from tilewright.targets.gpu.product.schedule import Sizes
from tilewright.targets.gpu.product.strategies import FEW_ROWS, LEAST_STEPS, REGISTER_GEMM
from tilewright.targets.gpu.workgroup_limits import CORES, MOST_SHARED, MOST_THREADS


def matmul(m: int, k: int, n: int) -> Kernel:
    return product_kernel("mk,kn->mn", (m, k), (k, n), weight=True)


@pytest.mark.parametrize("seed", range(12))
def test_every_choice_can_be_made_on_any_device(seed: int) -> None:
    rng = Random(seed)
    kernel = matmul(rng.randint(4, 500), rng.randint(1, 900), rng.randint(4, 900))
    schedule = REGISTER_GEMM.default(kernel)
    assert schedule.objection(kernel) == ""
    assert schedule.threads <= MOST_THREADS
    assert schedule.shared <= MOST_SHARED
    assert REGISTER_GEMM.lower(kernel, schedule).tiles > 0


def test_large_products_have_large_tiles_and_small_ones_fill_the_device() -> None:
    large, small = (
        REGISTER_GEMM.default(matmul(4096, 4096, 4096)),
        REGISTER_GEMM.default(matmul(128, 768, 768)),
    )
    assert large.x1 * large.y1 >= 128 * 64
    assert large.slices == 1
    assert 4 * small.x1 * small.y1 <= large.x1 * large.y1
    assert (large.ahead, large.apart) == (True, True)


@pytest.mark.parametrize(("name", "tile"), [("wgsl", (64, 128)), ("cuda", (128, 64))])
def test_tiles_of_a_large_product_are_tall_on_cuda_alone(name: str, tile: tuple[int, int]) -> None:
    kernel, made = matmul(4096, 4096, 4096), target(name)
    device = next(each for each in CLASSES.values() if each.target == name)
    default = made.default(kernel, device.variant)
    assert (default.x1, default.y1) == tile
    assert made.candidates(kernel, device, 0)[0].schedule == default


def test_the_model_counts_whole_rounds_of_tiles() -> None:
    schedule = REGISTER_GEMM.default(matmul(4096, 4096, 4096))
    cores = CORES
    one, full, more = (
        cycles(schedule, Sizes(batch, schedule.x1, schedule.y1, 512))
        for batch in (1, cores, cores + 1)
    )
    assert one == full < more < 2.01 * full


@pytest.mark.parametrize(
    ("rows", "steps", "fits"), [(1, 4096, True), (3, 768, True), (4, 768, False), (1, 8, False)]
)
def test_few_rows(rows: int, steps: int, fits: bool) -> None:
    kernel = matmul(rows, steps, 64)
    assert FEW_ROWS.suits(kernel) == fits
    assert not (fits and REGISTER_GEMM.suits(kernel))
    if fits:
        schedule = FEW_ROWS.default(kernel)
        assert schedule.objection(kernel) == ""
        assert steps >= LEAST_STEPS * schedule.slices


@pytest.mark.parametrize("name", ["wgsl", "cuda"])
@pytest.mark.parametrize(("rows", "grouped"), [(65536, True), (1024, False)])
def test_three_columns_of_many_rows_have_tiles(name: str, rows: int, grouped: bool) -> None:
    """An image, as a convolution makes it in the end."""
    assert REGISTER_GEMM.suits(matmul(rows, 64, 3)) == grouped
    default = target(name).default(matmul(rows, 64, 3), "core" if name == "wgsl" else "cuda")
    assert (default.tag == "group") == grouped
