"""How far an output is from the one that was expected.

Input: two arrays.  Output: one number; or the end of the benchmark, if it is more than allowed:
nothing that computes something else is timed.
"""

from __future__ import annotations

import numpy as np

from tilewright.base.numpy_scalars import Array


def relative_error(got: Array, want: Array) -> float:
    """The norm of the difference over that of what was expected, in f64; of zeros the difference's
    norm alone."""
    expected = want.astype(np.float64)
    norm = float(np.linalg.norm(expected))
    gap = float(np.linalg.norm(got.astype(np.float64) - expected))
    return gap / norm if norm else gap


def require_close(what: str, error: float, allowed: float) -> float:
    """The error; ends the benchmark if it is too large, or no number."""
    if not error <= allowed:
        raise SystemExit(f"{what}: the error is {error:.2g}, {allowed:.2g} is allowed")
    return error
