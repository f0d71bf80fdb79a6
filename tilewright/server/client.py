"""A session's client, and the interface through which it gets the results of other devices.

Input: a client's hello.  Output: `Client`; `CrowdResults` for a site without a store, which has no
results and takes no reports.  reports.py has the implementation with a store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tilewright.tuning.candidate_order import KnownCandidate
from tilewright.tuning.candidates import Space
from tilewright.tuning.catalogue import OpenedBundle, Winners
from tilewright.tuning.messages import Ack, Browser, Hello, Offer, Report, Unknown


@dataclass(frozen=True)
class Client:
    """What a session knows of its client.

    source: gives the name of its network today (rate_limits.py); a session may last past midnight
    seed:   the same for one network during a day, so that a session can be resumed
    spaces, offers, crowd: by number of the kernel
    """

    hello: Hello
    opened: OpenedBundle
    source: Callable[[], str]
    seed: int
    spaces: Mapping[int, Space]
    offers: Mapping[int, Offer] = field(default_factory=dict)
    crowd: Mapping[int, KernelResults] = field(default_factory=dict)

    @property
    def votes(self) -> bool:
        """Whether its reports can count: it runs the class's own variant and tunes for latency."""
        of_class = all(s.device.variant == self.hello.variant for s in self.spaces.values())
        return of_class and self.hello.objective == "latency"


@dataclass(frozen=True)
class KernelResults:
    """What other devices found for a kernel.

    known:   candidates, best first
    default: the candidate that new devices start with;  shadow: the candidate in its trial; None if
             there is none
    """

    known: tuple[KnownCandidate, ...] = ()
    default: int | None = None
    shadow: int | None = None

    def asks(self, own: int | None, drawn: bool) -> int | None:
        """The candidate that a device must measure against the compiler's own; None: no question.

        own: the bundle's candidate, whose ratio the device reports in any case;  drawn: whether the
             device takes part in a trial
        """
        asked = self.shadow if drawn and self.shadow is not None else self.default
        return None if asked in (0, own) else asked


@dataclass(frozen=True)
class Page:
    """Some keys with their standings, as JSON; more: whether another page follows."""

    data: bytes
    more: bool


class CrowdResults:
    """The results of a site without a store: none.  open: whether it takes reports"""

    open = False

    async def crowd(self, client: Client) -> list[KernelResults]:
        """What is known of each kernel of the client, in the order of its hello."""
        return [KernelResults() for _ in client.hello.specs]

    async def submit(self, report: Report, client: Client) -> Ack:
        """The answer to a report, after the commit."""
        return Ack(nonce=report.nonce, accepted=False, reason="off")

    async def winners(self, opened: OpenedBundle, device: str, browser: Browser) -> Winners:
        """The schedules that devices of this class start with, by kernel; only where they differ
        from the bundle's own."""
        return {}

    async def overview(self, device: str | None, number: int) -> Page:
        """A page of all keys (of one class) with their standings; pages count from 0.

        Raises Unknown without a store or for an unknown class, Busy if the store does not answer.
        """
        raise Unknown("This site has no store", hint="`tilewright serve --store URL`")

    def close(self) -> None:
        """Releases resources when the server ends."""

    def stats(self) -> dict[str, object]:
        """State of the store, for GET /api/stats."""
        return {"open": self.open}
