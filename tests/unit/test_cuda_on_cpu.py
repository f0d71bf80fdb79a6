"""CUDA C++ on the CPU: what threads of a block do together means what it does on a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tilewright.base.errors import HostError
from tilewright.hosts.cuda_on_cpu import KEPT, Kernels, compiler

TEXT = """
__global__ void reduce(const float *a, float *out, int n) {
  __shared__ float part[64];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = i < n ? a[i] : 0;
  for (int o = 16; o; o /= 2) v += __shfl_xor_sync(~0u, v, o);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x) return;
  float sum = 0;
  for (int w = 0; w < blockDim.x / 32; w++) sum += part[w];
  atomicAdd(out, sum);
}
template <typename T> __global__ void reverse(T *a) {
  extern __shared__ __align__(16) unsigned char raw[];
  T *copy = (T *)raw;
  int t = threadIdx.x + threadIdx.y * blockDim.x, n = blockDim.x * blockDim.y;
  copy[t] = a[blockIdx.z * n + t];
  __syncthreads();
  a[blockIdx.z * n + t] = copy[n - 1 - t];
}
__global__ void votes(int *out) {
  int t = threadIdx.x;
  out[t] = __syncthreads_count(t % 3 == 0) * 1000 + __popc(__ballot_sync(~0u, t & 1));
  out[t + 64] = __shfl_up_sync(~0u, t, 1, 8) * 1000 + __shfl_down_sync(~0u, t, 3, 16);
}
__global__ void apart(int *out) {
  if (threadIdx.x < 3) __syncthreads(); else __syncwarp();
}
__global__ void early(int *out) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  atomicInc(out, 1000);
}
"""


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    try:
        compiler()
    except HostError as error:
        pytest.skip(str(error))
    names = {n: n for n in ("reduce", "votes", "apart", "early")} | {"reverse": "reverse<double>"}
    return Kernels(TEXT, names)


def test_blocks_lanes_shared_memory_and_atomics(kernels: Kernels) -> None:
    out, ones = np.zeros(1, np.float32), np.ones(10_001, np.float32)
    kernels.run("reduce", [40], [256], [ones, out, np.int32(ones.size)], processors=2)
    assert out[0] == 10_001


def test_dynamic_shared_memory_of_templates_in_three_dimensions(kernels: Kernels) -> None:
    a = np.arange(3 * 96, dtype=np.float64).reshape(3, 96)
    expected = a[:, ::-1].copy()
    kernels.run("reverse", [1, 1, 3], [12, 8], [a], shared=96 * 8)
    assert (a == expected).all()


def test_votes_and_parts_of_warps(kernels: Kernels) -> None:
    out = np.zeros(128, np.int32)
    kernels.run("votes", [1], [64], [out])
    t = np.arange(64)
    up = np.where(t % 8 > 0, t - 1, t)
    down = np.where(t % 16 + 3 < 16, t + 3, t)
    assert (out[:64] == 22_016).all()
    assert (out[64:] == up * 1000 + down).all()


def test_threads_that_end_early_are_not_waited_for(kernels: Kernels) -> None:
    out = np.zeros(1, np.uint32)
    kernels.run("early", [5], [64], [out])
    assert out[0] == 200


def test_threads_at_different_barriers_are_an_error(kernels: Kernels) -> None:
    with pytest.raises(HostError, match="different barriers"):
        kernels.run("apart", [1], [64], [np.zeros(1, np.int32)])


def test_what_was_compiled_is_taken_by_others(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del kernels
    monkeypatch.setenv(KEPT, str(tmp_path))
    text = "__global__ void k(int *x) {{ x[threadIdx.x] = {}; }}"
    Kernels(text.format(7), {"k": "k"})

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(subprocess, "run", refused)
    out = np.zeros(4, np.int32)
    Kernels(text.format(7), {"k": "k"}).run("k", [1], [4], [out])
    assert out.tolist() == [7] * 4
    for another in ((text.format(8), False), (text.format(7), True)):
        with pytest.raises(AssertionError, match="again"):
            Kernels(another[0], {"k": "k"}, bounds=another[1])


def test_text_that_does_not_compile_is_an_error(kernels: Kernels) -> None:
    del kernels  # is skipped where there is no compiler
    with pytest.raises(HostError, match="refuses"):
        Kernels("__global__ void k() { missing(); }", {"k": "k"})


def test_a_function_that_nobody_has_is_an_error(kernels: Kernels) -> None:
    del kernels
    with pytest.raises(HostError, match="missing"):
        Kernels("void missing(); __global__ void k() { missing(); }", {"k": "k"})


GROUPS = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void groups(int *out) {
  cg::thread_block block = cg::this_thread_block();
  auto part = cg::tiled_partition<8>(block);
  __shared__ int all[64];
  all[block.thread_rank()] = part.shfl_down(int(block.thread_rank()), 1);
  cg::sync(block);
  const int other = all[block.size() - 1 - block.thread_rank()];
  part.sync();
  out[threadIdx.x] = other * 100 + part.thread_rank() + (part.ballot(threadIdx.x & 1) << 16);
}
"""


def test_cooperative_groups_of_a_block(kernels: Kernels) -> None:
    del kernels
    out, t = np.zeros(64, np.int32), np.arange(64)
    Kernels(GROUPS, {"groups": "groups"}).run("groups", [1], [64], [out])
    down = np.where(t % 8 < 7, t + 1, t)
    assert (out == down[::-1] * 100 + t % 8 + (0xAA << 16)).all()
