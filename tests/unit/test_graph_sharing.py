"""Which steps wait, which stay on one worker, how many tiles a ticket has: rules, and every order.

The judge of `share` is a relation: whatever order its decisions allow gives the result of the plan.
"""

from __future__ import annotations

from random import Random

import pytest

from tilewright.targets.step_sharing import Costs, StepSharing, Work, share

BIG, SMALL = 1_000_000, 100


def step(reads: str, writes: str, flops: int = BIG, tiles: int = 64) -> Work:
    """Buffers are single letters; upper and lower case overlap in their second half."""
    return Work(flops, 0, tiles, tuple(map(place, reads)), tuple(map(place, writes)))


def place(name: str) -> tuple[int, int]:
    start = 100 * (ord(name.lower()) - ord("a"))
    return (start, start + 64) if name.islower() else (start + 32, start + 96)


def waits(*steps: Work) -> str:
    return "".join("|" if s.waits else "." for s in share(steps))


def test_independent_steps_overlap() -> None:
    """Three projections of one input, the attention that needs them, then what reads it."""
    assert waits(step("x", "q"), step("x", "k"), step("x", "v"), step("qkv", "a")) == "...|"
    assert waits(step("a", "b"), step("b", "c"), step("a", "d"), step("cd", "e")) == ".|.|"


@pytest.mark.parametrize(
    ("first", "second", "wait"),
    [
        (step("a", "b"), step("b", "c"), True),  # read after write
        (step("a", "b"), step("c", "a"), True),  # write after read: the buffer's place is reused
        (step("a", "b"), step("c", "b"), True),  # write after write
        (step("a", "b"), step("a", "c"), False),
        (step("a", "b"), step("B", "c"), True),  # part of a buffer is enough
        (step("a", "b"), step("c", "A"), True),
    ],
)
def test_waits_follow_addresses(first: Work, second: Work, wait: bool) -> None:
    assert share([first, second])[1].waits is wait


def test_small_steps_stay_on_one_worker() -> None:
    shares = share([step("a", "b"), step("b", "c", SMALL), step("c", "d", SMALL), step("d", "e")])
    assert [s.grain for s in shares] == [2, 0, 0, 2]
    assert [s.waits for s in shares] == [False, True, False, True]
    assert [s.chained for s in shares] == [False, False, True, False]
    assert share([step("a", "b", BIG, tiles=1)])[0].grain == 0


def test_a_chain_breaks_where_it_needs_another_worker_s_result() -> None:
    small = [step("x", "y", SMALL), step("b", "z", SMALL), step("z", "w", SMALL)]
    shares = share([step("a", "b"), *small])
    assert [s.waits for s in shares] == [False, False, True, False]
    assert [s.chained for s in shares] == [False, False, False, True]


def test_tickets_are_worth_their_price_and_enough() -> None:
    costs = Costs(flops=1.0, barrier=100.0, ticket=1000.0, tickets=16)

    def grain(flops: int, tiles: int) -> int:
        return share([step("a", "b", flops, tiles)], costs)[0].grain

    assert grain(1_000_000, 100_000) == 101  # tiles of 10 ns
    assert grain(1_000_000, 64) == 1  # tiles of 15 us
    assert grain(10_000, 64) == 4  # would be 7, but then there were too few tickets
    assert grain(200, 3) == 1
    assert grain(99, 64) == 0


def test_what_is_read_again_is_walked_the_other_way() -> None:
    """A loop over weights w (which overlap nothing here) and v; the small step has no order."""
    wide = {"w": (10_000, 20_000), "v": (30_000, 50_000)}

    def product(weights: str, reads: str, writes: str, flops: int = BIG) -> Work:
        return Work(flops, 0, 64, (place(reads), wide[weights]), (place(writes),))

    turn = [product("w", "a", "b"), product("v", "b", "a"), step("a", "c")]
    assert [s.back for s in share(turn * 3)] == [False] * 3 + [True] * 3 + [False] * 3
    assert not any(s.back for s in share([product("w", "a", "b", SMALL)] * 3))


def random_plan(rng: Random) -> list[Work]:
    letters = "abcdefABCDEF"
    return [
        step(
            "".join(rng.sample(letters, rng.randint(0, 3))),
            rng.choice(letters),
            rng.choice((SMALL, BIG)),
        )
        for _ in range(rng.randint(2, 14))
    ]


@pytest.mark.parametrize("seed", range(200))
def test_only_a_conflict_makes_a_step_wait(seed: int) -> None:
    plan = random_plan(Random(seed))
    since: list[Work] = []
    for now, decided in zip(plan, share(plan), strict=True):
        if decided.waits:
            assert any(conflict(now, before) for before in since)
            since = []
        since.append(now)


def conflict(a: Work, b: Work) -> bool:
    def meet(some: tuple[tuple[int, int], ...], others: tuple[tuple[int, int], ...]) -> bool:
        return any(s < f and e < t for s, t in some for e, f in others)

    return meet(a.writes, b.reads + b.writes) or meet(a.reads, b.writes)


@pytest.mark.parametrize("seed", range(200))
def test_any_order_that_is_allowed_gives_the_plan_s_result(seed: int) -> None:
    rng = Random(seed)
    plan = random_plan(rng)
    shares = share(plan)
    expected = execute(plan, [1] * len(plan))
    for _ in range(5):
        assert execute(plan, groups(shares, rng)) == expected


def groups(shares: tuple[StepSharing, ...], rng: Random) -> list[int]:
    """A key per step: units between two waits in any order, a chain as one unit."""
    keys, phase, unit = [], 0.0, 0.0
    for s in shares:
        phase += s.waits
        unit = unit if s.chained else rng.random()
        keys.append(phase + unit)
    return keys


def execute(plan: list[Work], keys: list[float] | list[int]) -> list[int]:
    """Each step writes a value that depends on what it reads and on its number."""
    memory = list(range(1200))
    for number in sorted(range(len(plan)), key=lambda n: (keys[n], n)):
        seen = tuple(memory[i] for a, b in plan[number].reads for i in range(a, b))
        for a, b in plan[number].writes:
            memory[a:b] = [hash((number, seen)) + i for i in range(b - a)]
    return memory
