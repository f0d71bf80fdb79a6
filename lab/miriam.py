"""Miriam's policy (SenSys 2023): chooses the shards of a normal kernel that run beside a critical
one.

Input: costs of a normal and a critical kernel, the GPU.  Output: scores, the candidates that are
kept, the shard to start.  Where the paper is silent, docs/decisions/0031 decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tilewright.elastic.policy.tasks import Gpu, KernelCost

#: The share of the candidates that the shortlist keeps.
SHORTLISTED = 0.2
#: The most overhead of a kernel's shards, as a share of the kernel's own time: by additional
#: launches, and by threads that do the work of several.
MOST_LAUNCHES, MOST_FOLDS = 0.25, 1.0
LEAST_THREADS = 32


@dataclass(frozen=True)
class Shard:
    """A part of a normal kernel: an elastic grid of `blocks`, in which each thread does the work of
    `fold` logical threads."""

    blocks: int
    fold: int = 1


def dichotomy(tiles: int) -> list[int]:
    """S(K), smallest first: (M / 2^n, ..., M / 2, M) with the largest n that divides M."""
    found = [tiles]
    while found[-1] % 2 == 0:
        found.append(found[-1] // 2)
    return found[::-1]


def space(kernel: KernelCost) -> list[Shard]:
    """All candidates: each slice with each block size, halved down to a warp."""
    folds = [1]
    while kernel.threads // (2 * folds[-1]) >= LEAST_THREADS:
        folds.append(2 * folds[-1])
    return [Shard(blocks, fold) for blocks in dichotomy(kernel.tiles) for fold in folds]


def fits(shard: Shard, kernel: KernelCost, critical: KernelCost, gpu: Gpu) -> bool:
    """Whether a shard keeps Miriam's two constraints: its blocks fit beside the last wave of
    critical blocks, and its threads beside a critical block."""
    return (
        shard.blocks <= gpu.sms - critical.tiles % gpu.sms
        and kernel.threads // shard.fold <= gpu.threads - critical.threads
    )


def balance(shard: Shard, kernel: KernelCost, critical: KernelCost, gpu: Gpu) -> float:
    """WIScore, in [0, 1] for a shard that fits."""
    blocks = critical.tiles % gpu.sms + shard.blocks
    threads = critical.threads + kernel.threads // shard.fold
    return blocks / gpu.sms * threads / gpu.threads


def affordable(shard: Shard, kernel: KernelCost, gpu: Gpu) -> bool:
    """OScore: whether the shards of the whole kernel cost little beside the kernel itself."""
    waves = -(-kernel.tiles // kernel.residents(gpu))
    alone = waves * kernel.tile_us
    launches = (-(-kernel.tiles // shard.blocks) - 1) * gpu.launch_us
    folds = (shard.fold - 1) / shard.fold
    return launches < MOST_LAUNCHES * alone and folds < MOST_FOLDS


@lru_cache(maxsize=4096)
def shortlist(kernel: KernelCost, critical: KernelCost, gpu: Gpu) -> tuple[Shard, ...]:
    """The best fifth of the candidates by WIScore times OScore, the best first; at least one, if
    any has a score."""
    scored = [
        (balance(shard, kernel, critical, gpu), shard)
        for shard in space(kernel)
        if fits(shard, kernel, critical, gpu) and affordable(shard, kernel, gpu)
    ]
    count = max(1, round(SHORTLISTED * len(space(kernel))))
    best = sorted(scored, key=lambda s: (-s[0], -s[1].blocks, s[1].fold))
    return tuple(shard for _, shard in best[:count])


@lru_cache(maxsize=4096)
def shard(kernel: KernelCost, critical: KernelCost, gpu: Gpu, used: int) -> Shard | None:
    """The next shard by the shaded binary tree; None: nothing may go beside the critical kernel.

    used: blocks of normal kernels that run already

    The root is the whole kernel.  A node with more blocks than are free is split; a node with too
    many threads is shaded: its threads do the work of two.  The head of the tree is the shard to
    start.
    """
    candidates = shortlist(kernel, critical, gpu)
    blocks = gpu.sms - critical.tiles % gpu.sms - used
    threads = gpu.threads - critical.threads
    node = Shard(kernel.tiles)
    while node.blocks > blocks and node.blocks > 1:
        node = Shard(-(-node.blocks // 2), node.fold)
    while kernel.threads // node.fold > threads and kernel.threads // node.fold > LEAST_THREADS:
        node = Shard(node.blocks, 2 * node.fold)
    return _largest(candidates, node) if node.blocks <= blocks else None


def _largest(candidates: Sequence[Shard], node: Shard) -> Shard | None:
    """The candidate with the most blocks among those that the node covers."""
    inside = [c for c in candidates if c.blocks <= node.blocks and c.fold >= node.fold]
    return max(inside, key=lambda c: (c.blocks, -c.fold), default=None)
