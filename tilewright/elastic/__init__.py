"""Runs several models on one GPU: critical models with a bound on their slowdown, and normal ones.

`corun.py` does this from bundles to a result, in three steps.  Read it first.

1. Load.  `settings.py` has the user's choices, `session_devices.py` makes a stream for each model,
   `loading.py` loads critical models (`critical.py`) and normal ones (`normal.py`).
2. Calibrate.  `calibration.py` measures how normal models slow critical ones (`measure_curves.py`,
   `background.py`, `device_timing.py`), and takes one of the choices in `concurrency.py`.
3. Run.  `workload.py` starts an agent for each model (`agents.py`) and sources of requests
   (`load_generator.py`, `arrivals.py`).  `result.py` sums up.

Agents report events to a coordinator and carry out its actions.  `coordination.py` is the interface
between them, `coordinator.py` the coordinator of one process, `broker/` that of several processes.
`policy/` decides, without clocks or devices.  `interpreter_priority.py` orders the threads.

`plans.py` launches normal models, kernel by kernel or in runs; `gates.py` puts waits between their
kernels; `entry_kernels.py` is for comparison.  `block_trace.py` records when blocks ran, and
`timeline.py` draws it.  `transform/` makes foreign CUDA source elastic.

The imports below are the public names; `X as X` exports a name to type checkers.
"""

from tilewright.elastic.agents import CriticalAgent as CriticalAgent
from tilewright.elastic.agents import NormalAgent as NormalAgent
from tilewright.elastic.arrivals import ClosedLoop as ClosedLoop
from tilewright.elastic.arrivals import Poisson as Poisson
from tilewright.elastic.arrivals import Trace as Trace
from tilewright.elastic.arrivals import Uniform as Uniform
from tilewright.elastic.broker import Broker as Broker
from tilewright.elastic.broker import RemoteCoordinator as RemoteCoordinator
from tilewright.elastic.coordinator import Coordinator as Coordinator
from tilewright.elastic.corun import Corun as Corun
from tilewright.elastic.critical import CriticalModel as CriticalModel
from tilewright.elastic.critical import critical_task as critical_task
from tilewright.elastic.plans import ElasticKernels as ElasticKernels
from tilewright.elastic.policy import Gpu as Gpu
from tilewright.elastic.policy import KernelCost as KernelCost
from tilewright.elastic.policy import Normal as Normal
from tilewright.elastic.policy import Scheduler as Scheduler
from tilewright.elastic.policy import policy_named as policy_named
from tilewright.elastic.result import CorunResult as CorunResult
from tilewright.elastic.result import CriticalResult as CriticalResult
from tilewright.elastic.settings import CriticalSettings as CriticalSettings
from tilewright.elastic.settings import Settings as Settings
