"""A simulated GPU (by discrete events), on which the policies run as on a real one."""

from lab.simulator.measure import levels, phases, solo_us
from lab.simulator.run import Outcome, RequestSource, Served, simulate

__all__ = ["Outcome", "RequestSource", "Served", "levels", "phases", "simulate", "solo_us"]
