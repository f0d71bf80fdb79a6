"""Candidates that came and were not tried yet, in whole sessions with an engine that is made up."""

from __future__ import annotations

from test_tune_session_js import page

SAME = {"verdict": "same", "ratio": 1.0, "low": 0.99, "high": 1.01, "module": None}
SCHEDULES = [f"s x0={n}" for n in range(6)]
DONE = """
const { next } = source;
let said = false;
source.next = async () => {
  const sent = await next.call(source);
  if (sent || said) return sent;
  said = true;
  return { done: 0 };
};
const tried = [];
acts.report = () => tried.push(events.filter(({ type }) => type === 'trial').length);
await session({ report: true });
await out({ after: tried });
"""


def test_a_kernel_is_reported_after_its_last_candidate() -> None:
    """When the source says that it has no more, some of them are still in hand."""
    found = page(DONE, 1, 2, 3, 4, 5, outcome=SAME, schedules=SCHEDULES)
    assert found["verdicts"] == ["same"] * 5
    assert found["after"] == [5], "once, and not before"


def test_after_a_lost_connection_what_is_in_hand_is_not_asked_for_again() -> None:
    script = """
    const { next } = source;
    let lost = false;
    source.next = async () => {
      if (source.left.length || lost) return next.call(source);
      lost = true;
      throw new EngineError('network', 'cut', 'hint');
    };
    await session();
    await out({ told: source.log.hellos.map(({ tried }) => tried[0]) });
    """
    found = page(script, 1, 2, 3, 4, 5, outcome=SAME, schedules=SCHEDULES)
    assert found["verdicts"] == ["same"] * 5
    first, again = found["told"]
    assert first == []
    assert len(again) >= 4, "all but the one that is being tried"
