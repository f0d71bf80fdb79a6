"""Model files that promise more than they hold, or ask for more than anyone should give.

Output: by name, a function that writes such a file into a folder and returns its path.  Every one
of them is small; nearly every one must end as a typed error.
"""

from __future__ import annotations

import hostile_attributes  # noqa: F401
import hostile_counts  # noqa: F401
import hostile_declarations  # noqa: F401
import hostile_growth  # noqa: F401
import hostile_loops  # noqa: F401
import hostile_tensors  # noqa: F401
import hostile_windows  # noqa: F401
from hostile_parts import HOSTILE

__all__ = ["HOSTILE"]
