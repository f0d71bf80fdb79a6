"""A GPU in discrete events, on which the policies run as they do on a real one."""

from tilewright.elastic.simulator.measure import levels, phases, solo_us
from tilewright.elastic.simulator.run import Outcome, RequestSource, Served, simulate

__all__ = ["Outcome", "RequestSource", "Served", "levels", "phases", "simulate", "solo_us"]
