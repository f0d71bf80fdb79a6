"""Workloads from the literature, by name: which models run together, and how their requests arrive.

Output: `WORKLOADS`, plain data.  Names of models are those of `models.MODELS`; times are seconds.
Nothing here runs a workload; code that does reads `Arrival.clients` and `Arrival.times`.

Sources: MDTB and LGSVL from Miriam (SenSys '23, table 2 and section 9.5), which leaves open the
depth of its ResNet and the number of clients; DISB A to E and REAL from SJTU-IPADS/disb
(benchmarks/workloads).  REAL is synthetic here: gaps with the statistics of the recorded ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lab.workloads.synthetic import Synthetic
from tilewright.base.errors import UsageError, unknown_name
from tilewright.elastic.arrivals import Arrival, ClosedLoop, Poisson, Uniform

__all__ = ["PAPER_LOADS", "WORKLOADS", "Stream", "Workload", "workload"]


@dataclass(frozen=True)
class Stream:
    """Requests to one model; each should be answered within `deadline` seconds of its arrival.

    If no deadline is given, that of open arrivals is their mean gap, as for periodic tasks in
    real-time scheduling; closed loops have none.
    """

    model: str
    arrival: Arrival
    deadline: float | None = None

    @property
    def due(self) -> float | None:
        """The deadline in seconds, given or by default; None if requests have none."""
        if self.deadline is not None or not self.arrival.rate:
            return self.deadline
        return self.arrival.mean_gap

    def scaled(self, factor: float) -> Stream:
        """The stream at `factor` times its rate; a given deadline is divided by the factor."""
        deadline = None if self.deadline is None else self.deadline / factor
        return replace(self, arrival=self.arrival.scaled(factor), deadline=deadline)


@dataclass(frozen=True)
class Workload:
    """Critical streams, and normal streams that use the rest of the GPU."""

    critical: tuple[Stream, ...]
    normal: tuple[Stream, ...]

    @property
    def streams(self) -> tuple[Stream, ...]:
        return self.critical + self.normal

    def scaled(self, factor: float) -> Workload:
        """The workload with open arrivals at `factor` times their rates; closed loops do not
        change."""
        return Workload(
            tuple(s.scaled(factor) for s in self.critical),
            tuple(s.scaled(factor) for s in self.normal),
        )

    def with_clients(self, number: int) -> Workload:
        """The workload with `number` clients in each closed loop of the normal streams."""

        def more(stream: Stream) -> Stream:
            closed = stream.arrival.clients > 0
            return replace(stream, arrival=ClosedLoop(number)) if closed else stream

        return replace(self, normal=tuple(map(more, self.normal)))

    def load(self, solo: Mapping[str, float]) -> float:
        """Share of the device's time that open arrivals ask for, with `solo` seconds by model."""
        return sum(s.arrival.rate * solo[s.model] for s in self.streams)

    def at_load(self, load: float, solo: Mapping[str, float]) -> Workload:
        """Rates scaled so that open arrivals ask for this share on a device of other speed."""
        now = self.load(solo)
        if not now:
            raise UsageError(
                "All streams of the workload are closed loops: there is no rate to scale",
                hint="Run it as it is",
                models=[s.model for s in self.streams],
            )
        return self.scaled(load / now)


def _closed(*models: str) -> tuple[Stream, ...]:
    return tuple(Stream(model, ClosedLoop()) for model in models)


_FIVE = ("ResNet-152", "DenseNet-201", "VGG-19", "Inception-v3", "DistilBERT")

#: Milliseconds between two requests of the recording: mean, standard deviation, least, most.
_GAPS: Mapping[str, tuple[float, float, float, float]] = {
    "ResNet-152": (103.7, 12.5, 86, 183),
    "DenseNet-201": (192.9, 42.7, 87, 343),
    "VGG-19": (52.3, 83.2, 3, 283),
    "Inception-v3": (103.5, 23.8, 70, 205),
    "DistilBERT": (224.0, 87.4, 87, 957),
}

WORKLOADS: Mapping[str, Workload] = {
    "MDTB-A": Workload(_closed("AlexNet"), _closed("CifarNet")),
    "MDTB-B": Workload((Stream("SqueezeNet", Uniform(10)),), _closed("AlexNet")),
    "MDTB-C": Workload((Stream("GRU", Poisson(10)),), _closed("ResNet-50")),
    "MDTB-D": Workload((Stream("LSTM", Uniform(10)),), _closed("SqueezeNet")),
    "AlexNet pair": Workload(_closed("AlexNet"), _closed("AlexNet")),
    "LGSVL": Workload((Stream("ResNet-50", Uniform(10)),), (Stream("SqueezeNet", Uniform(12.5)),)),
    "DISB-A": Workload((Stream("VGG-19", Uniform(100)),), _closed("ResNet-152")),
    "DISB-B": Workload(_closed("VGG-19"), _closed("ResNet-152")),
    "DISB-C": Workload((Stream("VGG-19", Uniform(100)),), _closed(*_FIVE)),
    "DISB-D": Workload(tuple(Stream(m, Uniform(20)) for m in _FIVE), _closed(*_FIVE)),
    "DISB-E": Workload(tuple(Stream(m, Poisson(20)) for m in _FIVE), _closed(*_FIVE)),
    "REAL": Workload(
        tuple(Stream(m, Synthetic(*(ms / 1e3 for ms in _GAPS[m]))) for m in _FIVE),
        _closed(*_FIVE),
    ),
}  # fmt: skip

#: The least load of open arrivals at which Miriam's gains are possible on its boards.
#:
#: The paper gives total throughputs over sequential execution, but no latencies.  Beside a closed
#: loop of short requests such a ratio is at most 1 / (1 - load), so a gain g needs a load of 1 -
#: 1/g.  If all arrivals are open (LGSVL), sequential execution serves 1/load of them, so the gain
#: is the load.
PAPER_LOADS: Mapping[str, float] = {
    "MDTB-B": 1 - 1 / 1.85,
    "MDTB-C": 1 - 1 / 1.79,
    "MDTB-D": 1 - 1 / 1.91,
    "LGSVL": 1.89,
}


def workload(name: str) -> Workload:
    """The workload of this name; `UsageError` if there is none."""
    if name not in WORKLOADS:
        raise unknown_name("workload", name, WORKLOADS)
    return WORKLOADS[name]
