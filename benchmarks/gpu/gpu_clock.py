"""How long a GPU runs before it is timed, and how long a timed run is.

Output: milliseconds, which benchmarks of WebGPU and of CUDA share.
"""

from __future__ import annotations

#: An idle card runs at a fraction of its clock until it has worked for WARM_MS; between two samples
#: KEPT_MS keep it there.
WARM_MS, KEPT_MS = 400.0, 100.0
#: A run, of as many repeats as it takes: beside it what a submission costs does not count.
RUN_MS = 20.0
