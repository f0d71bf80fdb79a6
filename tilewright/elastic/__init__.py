"""Runs several models on one GPU: critical models with a bound on their slowdown, and normal ones.

* `policy/` makes the decisions, without clocks or devices.
* `corun.py` runs bundles on a device; its steps: `loading.py`, `calibration.py`, `workload.py`.
* `broker/` coordinates models of several processes.
* `coordinator.py` and `agents.py` have the threads; `interpreter_priority.py` orders them.
* `critical.py`, `normal.py`, `plans.py`, `entry_kernels.py` and `gates.py` launch models.
* `measure_curves.py`, `background.py` and `device_timing.py` measure slowdowns and times.
* `block_trace.py` records when kernels ran, and `timeline.py` draws it.

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
