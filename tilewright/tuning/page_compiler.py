"""The compiler in a page, called by the worker under Pyodide (web/tune/sources/pyodide_worker.js).

Input: the bundle's kernel specifications as JSON text, a device class, candidates by number.
Output: JSON text and module bytes, equal to those of a server or a static build.  This file and all
its imports need only the standard library.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from tilewright import TOOL as TOOL  # the worker under Pyodide asks for it
from tilewright.base.errors import NoSpace, TilewrightError
from tilewright.kernel.serialise import kernel_from_data
from tilewright.targets import device_classes as devices
from tilewright.tuning.candidates import (
    Space,
    build,
    default_of,
    described,
    ordered,
    plans_of,
    space_of,
)

log = logging.getLogger(__name__)

#: A candidate's description and its module.
Made = tuple[dict[str, Any], bytes]


class PageCompiler:
    """The kernels of one bundle on one class of devices.

    given: "kernels": the text of the bundle's list of kernels; "slots": the text of the class's
           target's slots; "plans": the numbers of the kernels that each plan's steps run; "device":
           id of a class; "features" of the device beyond its class's; "objective"
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.device = devices.find(given["device"])
        if not self.device.tunable:
            raise NoSpace(
                f"There are no candidates for devices of class {self.device.id} yet",
                hint="Choose a class that has a variant",
            )
        self.features = frozenset(given.get("features") or ())
        self.objective = given.get("objective", "latency")
        self.slots = json.loads(given["slots"])
        self.kernels = [kernel_from_data(entry["spec"]) for entry in json.loads(given["kernels"])]
        self.plans = plans_of(given["plans"])
        self.space = cache(self._space)

    def _space(self, spec: int) -> Space:
        return space_of(self.kernels[spec], self.device, self.objective)

    def offers(self, specs: list[int]) -> list[dict[str, Any]]:
        """The kernels, each with its candidates in their order of trial."""
        return [
            ordered(spec, self.space(spec), self._default(spec), self.features) for spec in specs
        ]

    def _default(self, spec: int) -> int | None:
        builds, space = self.slots[spec]["builds"], self.space(spec)
        return default_of(builds, self.device.variant, space, self.features)

    def make(self, spec: int, candidate: int) -> Made | None:
        """A candidate and its module; None if it cannot be made, which skips it as elsewhere."""
        space, device = self.space(spec), self.device
        schedule = space.schedules[candidate]
        try:
            built = build(self.kernels[spec], schedule, device.target, device.variant)
        except TilewrightError as error:
            log.warning("A candidate is left out: %s", error)
            return None
        about = described(space, candidate, built, self.plans.get(spec, ()))
        head = {"spec": spec, "candidate": candidate}
        return {**head, "checksum": space.checksum, **about}, built.module


_compilers: list[PageCompiler] = []


def classes() -> list[dict[str, Any]]:
    return devices.table()


def open_compiler(given: str) -> list[dict[str, Any]]:
    """Starts over with this bundle and class; returns the offers."""
    data = json.loads(given)
    _compilers[:] = [PageCompiler(data)]
    return _compilers[0].offers(data["specs"])


def make(spec: int, candidate: int) -> Made | None:
    return _compilers[0].make(spec, candidate)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "classes": classes,
    "open": open_compiler,
    "make": make,
}


def answer(name: str, *given: Any) -> list[str | bytes]:
    """Calls a function of this file: returns the error or "", then JSON text, then bytes if any."""
    try:
        value = _FUNCTIONS[name](*given)
    except TilewrightError as error:
        return [json.dumps(error.to_json())]
    head, *rest = value if isinstance(value, tuple) else (value,)
    return ["", json.dumps(head), *rest]
