"""A session's kernels as plain data (web/tune/loop/active_session.js)."""

from __future__ import annotations

from node import run

SCRIPT = """
const { startOf, summaryOf } = await import('TUNE/loop/active_session.js');
const { openLedger } = await import('TUNE/records/ledger.js');
const tables = { tried: {}, bad: {}, sound: {}, refuted: {}, checksums: {} };
const ledger = openLedger({ objective: 'latency', winners: [], ...tables }, 'digest', 'latency');
const usual = { kind: 'k', shape: 's', checksum: 'c', count: 1, default: 0 };
ledger.take([{ ...usual, spec: 0, fixed: 'extents' }, { ...usual, spec: 1, fixed: '' }]);
const target = { plan: 0, node: 'n', part: 1, share: 1, kernel: 'k', flops: 1, own: 1 };
const targets = new Map([0, 1, 2].map((spec) => [spec, { ...target, spec }]));
const tools = { ledger, targets };
const story = { rounds: 0, spent: 0, latency: null, gain: { verdict: 'none' } };
const { kernels } = summaryOf(story, tools);
console.log(JSON.stringify([startOf(tools), kernels].map((all) => all.map(({ fixed }) => fixed))));
"""


def test_kernels_say_why_they_are_not_tuned() -> None:
    """At the start and at the end; of a kernel that nobody offered nothing is known."""
    assert run(SCRIPT) == [["extents", "", ""]] * 2
