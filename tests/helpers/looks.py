"""After how many looks at the budget workers of a trial on the CPU are sent away.

Input: looks of the first round.  Output: looks by round of launches.
"""

from __future__ import annotations

from collections.abc import Callable


def growing(looks: int) -> Callable[[int], int]:
    """One more every second round: a search looks at each slot, and a round that always ends
    within one would never come further.  0: nobody is sent away."""
    return lambda number: looks + number // 2 if looks else 0
