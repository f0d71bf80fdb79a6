"""Page: what stands between a critical request and its bound: the floor, the host, the policy.

Input: the records of corun/: floor, host_turns and bound.  Output: the page.
"""

from __future__ import annotations

from benchmarks.records import Record, Records, by, rows, values
from benchmarks.report.page import Answer, Page, Section, count, over
from benchmarks.report.tables import Columns, listed, paragraphs, table, told

#: What lay beside the critical model, as columns of the floor.
BESIDE = ("nothing", "nothing, no pauses", "nothing, 10 ms between", "nothing, cold caches",
          "normal work, budget 0", "normal work, weights kept")  # fmt: skip
NOTHING, EMPTIED = BESIDE[0], BESIDE[4]
#: The variant of the simulator that the product has.
OURS = "waits 10 us"
TURNS: Columns = {
    "normal models": "models", "running at once": lambda r: str(r["together"] or r["models"]),
    "p50, µs": "p50", "p90, µs": "p90", "p99, µs": "p99",
    "runs started in vain, of a request": "in_vain", "runs of a request": "runs",
    "a decision, µs": "decision_us", "requests": "n:,",
}  # fmt: skip
VARIANTS: Columns = {
    "variant": "variant", "cases": "cases", "refused": "refused", "requests over the bound, most":
    "over:.1%", "in the second half, most": "later:.1%", "p99 over alone, most": "p99:.2f",
    "runs in which normal work was ended": "ended", "requests": "n:,",
}  # fmt: skip
BOUND: Columns = {
    "workload": "workload", "bound": "max_slowdown", "least possible": "least:.2f",
    "over the bound": lambda r: "refused" if r["refused"] else told(r["over"], ".1%"),
    "over it by waiting": "waited:.1%", "by waiting, alone on the GPU": "waited_alone:.1%",
    "p99 over alone": "p99:.2f",
    "normal share": "normal_share:.2f", "requests": "n:,",
}  # fmt: skip


def floor(record: Record) -> str:
    """A line per workload and clock: p99 over the time alone, by what lay beside."""
    head = ["p99 over alone: workload", "SMs", "clock", "µs alone", *BESIDE]
    lines = []
    for (pair, sms), found in by(record["rows"], "pair", "sms").items():
        beside = {r["beside"]: r for r in found}
        for clock in ("GPU", "host"):
            key = clock.lower()
            cells = (told(beside.get(name, {}).get(f"{key}_p99"), ".2f") for name in BESIDE)
            alone = told(found[0][f"{key}_alone_us"], ",.0f")
            lines.append([pair, str(sms), clock, alone, *cells])
    return table(head, lines)


def bound(record: Record) -> str:
    """Every variant with the worst of its workloads and bounds, then every case of ours."""
    variants = []
    for (variant,), found in by(record["rows"], "variant").items():
        ran = {"rows": [r for r in found if not r["refused"]]}
        worst = {key: max(values(ran, key), default=None) for key in ("over", "later", "p99")}
        sums = {key: sum(values(ran, key)) for key in ("ended", "n")}
        refused = len(found) - len(ran["rows"])
        variants.append({"variant": variant, "cases": len(found), "refused": refused}
                        | worst | sums)  # fmt: skip
    ours = rows(record, variant=OURS)
    said = (f"The product's variant, {OURS}, by workload and bound:", listed(ours, BOUND))
    return paragraphs(listed(variants, VARIANTS), *(said if ours else ()))


def verdict(records: Records) -> str:
    floors = values(records["corun.floor"], "gpu_p99", beside=EMPTIED)
    worst = max(values(records["corun.bound"], "over", variant=OURS))
    return (
        f"Even if normal work keeps no worker, a critical request's p99 on the GPU is "
        f"{min(floors):.2f} to {max(floors):.2f} times its time alone, so no lower bound can be "
        f"promised; in the simulator, with curves as measured, {told(worst, '.1%')} of the "
        "requests exceed an accepted bound at most."
    )


def answers(records: Records) -> list[Answer]:
    names = ("corun.floor", "corun.host_turns", "corun.bound")
    floor, turns, bounds = (records[name] for name in names)
    ours = rows(bounds, variant=OURS, refused=False)
    late = round(sum(r["over"] * r["n"] for r in ours))
    p99 = "p99 on the GPU over alone, beside"
    return [
        over(f"{p99} nothing", values(floor, "gpu_p99", beside=NOTHING), floor, ".2f"),
        over(f"{p99} normal work that keeps no worker", values(floor, "gpu_p99", beside=EMPTIED),
             floor, ".2f"),
        over("host: µs of a decision", values(turns, "decision_us"), turns, ".0f"),
        count("simulated requests over an accepted bound", late, sum(r["n"] for r in ours), bounds),
    ]  # fmt: skip


PAGE = Page("bounds", "What a bound can be", verdict, answers, (
    Section("corun.floor", "The floor of every bound",
            "Critical requests alone and beside a normal model that may keep no worker meanwhile, "
            "over the median of those with short pauses and nothing beside them: by the GPU's "
            "clock from the model's first to its last kernel, by the host's from the call to the "
            "answer.", floor),
    Section("corun.host_turns", "A critical request and the threads of normal models, on the host",
            "Without a GPU: a request of 1600 µs that lets nobody stay, from its begin to when its "
            "thread has seen the end. Runs of normal kernels for each request, and those of them "
            "that were started while it ran.", TURNS),
    Section("corun.bound", "The bound on the simulated GPU",
            "Critical requests over their bound: by interference, counted from their begin, and of "
            "the others by waiting for requests before them, beside a queue with nothing else on "
            "the GPU. Least possible: the slowdown with a budget of 0 by the measured curve; a "
            "bound below is refused. In the second half of each run curves that "
            "promise too much have been noticed.", bound),
))  # fmt: skip
