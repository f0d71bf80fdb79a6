"""One engine with one number of threads in a separate browser, driven over a socket.

Input: an engine's name, threads, the browser or Node with Dawn.  Output: load times, outputs, times
of runs, memory.  A browser per engine: a pool that spins, a crash or a hang then disturbs nobody
else, and the memory of its page is that engine's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from benchmarks import processes
from benchmarks.peers.files import Files
from benchmarks.peers.operands import Arrays
from benchmarks.peers.site import Site
from tilewright.base.errors import HostError, TilewrightError
from tilewright.hosts.browser_connection import Json, Link, Reply, tensors
from tilewright.hosts.browser_dawn import Dawn, require_dawn
from tilewright.hosts.browser_discovery import require
from tilewright.hosts.browser_process import BrowserProcess, started
from tilewright.hosts.browser_programs import PageProgram
from tilewright.server import BackgroundServer

T = TypeVar("T")

START_SECONDS = 60.0
#: The longest silence of a page, by what it was asked.
LOAD_SECONDS, RUN_SECONDS, MEMORY_SECONDS, SPEAK_SECONDS = 120.0, 90.0, 30.0, 600.0


#: Chromium answers questions about memory at once instead of after its next collection: the flag is
#: the one that the specification's own tests use.  Firefox has no such question.
MEASURED = {"chromium": ("--enable-blink-features=ForceEagerMeasureMemory",)}


#: Runs page/ in Node.
_NODE_PAGE = Path(__file__).parent / "node" / "page.mjs"


class DawnPage(Dawn):
    """Node with Dawn, for the pages of this folder."""

    def command(self, profile: Path, url: str) -> list[str]:
        del profile
        flags = ("--experimental-websocket", "--no-warnings")
        words = (str(_NODE_PAGE), str(self.package), " ".join(self.options), url)
        return [str(self.path), *flags, *words]


class Session:
    """`with Session("ort", 2, "chromium") as session: session.open(files) …`.

    browser: the name of one, or "dawn": Node, with Chromium's WebGPU
    asked:   what the page's address tells of the engine, where its name is not its adapter's
    """

    def __init__(self, engine: str, threads: int, browser: str, asked: str = "") -> None:
        self.engine, self.threads = engine, threads
        self.browser = _program(browser)
        self._asked = asked or f"engine={engine}"
        self.site = Site()
        self.user_agent = ""
        self._stack = ExitStack()
        self._process: BrowserProcess | None = None
        self._link: Link | None = None
        self._url = ""

    def __enter__(self) -> Session:
        with ExitStack() as stack:
            self._url = stack.enter_context(BackgroundServer(self.site.app)).url
            address = self._new_page()
            self._process = stack.enter_context(started(self.browser, address))
            self._meet()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, files: Files) -> None:
        """Lets the page fetch the files of a case."""
        self.add_folder(files.case.name, files.folder)

    def add_folder(self, name: str, folder: Path) -> None:
        """The same for a folder, which may have a `bundle`."""
        self.site.folders[name] = folder
        if (folder / "bundle").is_dir():
            self.site.bundles[name] = folder / "bundle"

    def open(self, files: Files) -> Json:
        """Engine and model ready to run: milliseconds, and what the engine says of itself."""
        return self.open_task(files.task)

    def open_task(self, task: Json) -> Json:
        """The same for what the page needs to know."""
        return self._ask("open", LOAD_SECONDS, task=task)

    def speak(self, prompt: str, ids: Sequence[int], most: int) -> Json:
        """What a language model makes of a prompt, which is given as text and as ids."""
        return self._ask("speak", SPEAK_SECONDS, prompt=prompt, ids=list(ids), most=most)

    def first(self) -> tuple[float, Arrays, Json]:
        """The next run, with its outputs."""
        reply = self._request("first", RUN_SECONDS, {})
        result = reply.result
        return result["milliseconds"], tensors(result["outputs"], reply.frames), result

    def warm(self, milliseconds: float, most: int) -> float:
        """Runs until that time is over or `most` runs are done; the fastest run's milliseconds."""
        found = self._ask("warm", RUN_SECONDS, milliseconds=milliseconds, most=most)
        return float(found["fastest"])

    def warm_stream(self, milliseconds: float) -> tuple[float, int]:
        """The same for runs in a row: the fastest's milliseconds, and runs that a sample takes."""
        found = self._ask("warmStream", RUN_SECONDS, milliseconds=milliseconds)
        return float(found["fastest"]), int(found["batch"])

    def round(self, samples: int, batch: int, stream: bool = False, settle: float = 0.0) -> Json:
        """Times of `samples` batches of runs, in milliseconds per run.

        stream: the runs of a batch leave their outputs on the device, which is waited for once
        settle: milliseconds of runs before, in which a GPU gets back to its clock
        """
        asked = {"samples": samples, "batch": batch, "stream": stream, "settle": settle}
        return self._ask("round", RUN_SECONDS, **asked)

    def memory(self) -> Json:
        """Bytes of Wasm memory and JavaScript heap now, and the page's resident peak."""
        found = self._ask("memory", MEMORY_SECONDS)
        return found | {"resident_peak_bytes": self._group(processes.page_peak_bytes)}

    def close(self) -> None:
        """Frees the model; engine and page stay."""
        self._ask("close", MEMORY_SECONDS)

    def reload(self) -> None:
        """Reloads the page in the same browser: a second visit."""
        self._new_page(go=True)
        self._meet()

    def cpu_seconds(self) -> float | None:
        """Processor time of the browser so far; None where the system does not say."""
        return self._group(processes.cpu_seconds)

    def _group(self, ask: Callable[[int], T]) -> T:
        assert self._process is not None
        return ask(self._process.pid)

    def _new_page(self, go: bool = False) -> str:
        link = Link(self._check_alive)
        self.site.links[link.token] = link
        address = f"/page/index.html?token={link.token}&{self._asked}&threads={self.threads}"
        if go:
            self._ask("go", MEMORY_SECONDS, url=address)
        self._link = link
        return self._url + address

    def _meet(self) -> None:
        assert self._link is not None
        self.user_agent = self._link.wait_for_page(START_SECONDS)["userAgent"]

    def _ask(self, method: str, timeout: float, **params: object) -> Json:
        found: Json = self._request(method, timeout, params).result
        return found

    def _request(self, method: str, timeout: float, params: Json) -> Reply:
        assert self._link is not None
        return self._link.request(method, params, timeout=timeout)

    def _check_alive(self) -> None:
        if self._process is not None and self._process.exit_code is not None:
            raise HostError("The browser ended while it was needed", hint="See its memory")


def _program(browser: str) -> PageProgram:
    if browser == "dawn":
        return DawnPage(**vars(require_dawn()))
    return replace(require(browser), flags=MEASURED.get(browser, ()))


def quietly_closed(session: Session) -> None:
    """Ends a session that may be dead already."""
    with suppress(TilewrightError, OSError):
        session.__exit__(None, None, None)
