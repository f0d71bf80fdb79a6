"""Candidates that came and were not tried yet, in whole sessions with an engine that is made up."""

from __future__ import annotations

from node import run
from test_tune_gain import SAME
from test_tune_session_js import page
from tuned_page import PAGE

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


def test_after_the_end_nobody_connects() -> None:
    """The line to the source was lost, and the limit is reached with what was in hand."""
    script = """
    const { next } = source;
    let lost = false;
    source.next = async () => {
      lost ||= source.left.length < 2;
      if (!lost) return next.call(source);
      throw new EngineError('network', 'cut', 'hint');
    };
    await session({ rounds: 3 });
    const [hellos, told] = [source.log.hellos.length, events.length];
    await sleep(300);
    await out({ hellos: source.log.hellos.length - hellos, told: events.length - told });
    """
    found = page(script, 1, 2, 3, 4, 5, outcome=SAME, schedules=SCHEDULES)
    assert found["verdicts"] == ["same"] * 3
    assert (found["hellos"], found["told"]) == (0, 0)


def test_a_new_welcome_waits_for_the_trial() -> None:
    """After the reconnection the server has another space, so that the winner goes: not while a
    candidate is compared with it."""
    script = """
    const { next, open } = source;
    let lost = false;
    source.open = async (hello) => {
      const welcome = await open.call(source, hello);
      // A trial has begun meanwhile.
      if (lost) await sleep(150);
      if (lost) welcome.kernels[0].checksum = 'other';
      return welcome;
    };
    source.next = async () => {
      if (lost || source.left.length > 1) return lost ? null : next.call(source);
      lost = true;
      throw new EngineError('network', 'cut', 'hint');
    };
    acts.attempt = async () => {
      log.push('begins');
      if (lost) await sleep(200);
      log.push('ends');
    };
    await session();
    await out();
    """
    found = run(PAGE + script, given={"candidates": [1, 2, 3, 4], "schedules": SCHEDULES})
    assert found["events"].count("resumed") == 1
    begun = [n for n, one in enumerate(found["log"]) if one == "begins"]
    assert [found["log"][n + 1] for n in begun] == ["ends"] * len(begun)
    assert (found["log"][-1], found["winner"]) == ([0], 0)
