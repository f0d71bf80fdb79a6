"""The one definition of a quantile.

Input: values, a share.  Output: one of the values; nothing is interpolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not exceeded by `share` of all (nearest rank).

    Raises ValueError where there is none.
    """
    if not values:
        raise ValueError("there are no values")
    return sorted(values)[max(0, ceil(share * len(values) - 1e-9) - 1)]
