"""Who a session serves, and the desk where it asks and reports.

Input: a client's hello and what belongs to it.  Output: `Client`; `Desk`: what a site does that has
no store: it knows nothing of others and takes no reports.  reports.py has the other desk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilewright.tuning.candidates import Space
from tilewright.tuning.catalogue import Opened, Winners
from tilewright.tuning.compose import Known
from tilewright.tuning.messages import Ack, Browser, Hello, Offer, Report, Unknown


@dataclass(frozen=True)
class Client:
    """Who a session serves: its hello, and what belongs to that.

    source: names its network today (sources.py): a session may see several days
    seed:   the same for one network during a day, so that a session can be resumed
    spaces, offers: by number of the kernel
    """

    hello: Hello
    opened: Opened
    source: Callable[[], str]
    seed: int
    spaces: Mapping[int, Space]
    offers: Mapping[int, Offer]

    @property
    def votes(self) -> bool:
        """Whether its reports can count: on the class's own code, by who looks for the fastest."""
        of_class = all(s.device.variant == self.hello.variant for s in self.spaces.values())
        return of_class and self.hello.objective == "latency"


@dataclass(frozen=True)
class Crowd:
    """What the crowd knows of a kernel: candidates, best first; whether one was agreed on."""

    known: tuple[Known, ...] = ()
    settled: bool = False


@dataclass(frozen=True)
class Page:
    """JSON of some keys with what the crowd says of them; whether there is a page after it."""

    data: bytes
    more: bool


class Desk:
    """Nobody to ask.  open: whether it takes reports"""

    open = False

    async def crowd(self, client: Client) -> list[Crowd]:
        """What is known of each kernel of the client, in the order of its hello."""
        return [Crowd() for _ in client.hello.specs]

    async def submit(self, report: Report, client: Client) -> Ack:
        """The answer to a report, after the commit."""
        return Ack(nonce=report.nonce, accepted=False, reason="off")

    async def winners(self, opened: Opened, device: str, browser: Browser) -> Winners:
        """What devices of this class start with, by kernel, where it is not what the bundle has."""
        return {}

    async def overview(self, device: str | None, number: int) -> Page:
        """All keys (of one class) with what the crowd says of them, page by page from 0."""
        raise Unknown("This site has no store", hint="`tilewright serve --store URL`")

    def close(self) -> None:
        """When the server ends."""

    def stats(self) -> dict[str, object]:
        """How the store does."""
        return {"open": self.open}
