"""A GPU in discrete events, on which the policies run as they do on a real one."""

from tilewright.elastic.simulator.measure import levels, phases, solo_us
from tilewright.elastic.simulator.run import Outcome, Served, Source, simulate

__all__ = ["Outcome", "Served", "Source", "levels", "phases", "simulate", "solo_us"]
