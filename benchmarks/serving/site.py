"""A `tilewright serve` in a process of its own, and the bundle that it serves.

Input: a bundle, the URL of a store or "" for none.  Output: the server's URL, its statistics, and
the process, which may be killed and started again on the same port.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import ROOT
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model

MODEL = ROOT / "tests" / "models" / "bert-tiny-eager-torchscript.onnx"
#: Code variants of the bundle.
VARIANTS = ("x86",)
#: Seconds until a server listens.
START = 60


@dataclass
class Site:
    """before: Python that runs first, in lines;  log: where its standard error goes"""

    bundle: Path
    store: str = ""
    workers: int = 1
    before: str = ""
    log: Path | None = None
    port: int = 0
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        code = f"{self.before}\nfrom tilewright.cli import main; main()"
        options = [
            "--store", self.store, "--source-key", "benchmark", "--trusted-proxy", "127.0.0.1",
            "--compile-workers", str(self.workers),
        ] if self.store else []  # fmt: skip
        with self.log.open("w") if self.log else nullcontext() as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, "serve", f"m={self.bundle}",
                 "--port", str(self.port), "--json", *options],
                stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        assert self.process.stdout is not None
        url = json.loads(self.process.stdout.readline())["url"]
        self.port = int(url.rpartition(":")[2])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stats(self) -> Mapping[str, Mapping[str, float]]:
        with urllib.request.urlopen(self.url + "/api/stats", timeout=START) as answer:
            found: Mapping[str, Mapping[str, float]] = json.loads(answer.read())
        return found

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.communicate(timeout=START)
            self.process = None


@contextmanager
def running(sites: Sequence[Site]) -> Iterator[None]:
    try:
        for site in sites:
            site.start()
        yield
    finally:
        for site in sites:
            site.end(signal.SIGKILL)


def build(folder: Path, variants: Sequence[str] = VARIANTS) -> Path:
    """A language model's bundle."""
    options = Options(buckets={"n": (16,)}, variants=tuple(variants))
    write(compile_model(MODEL, options).contents, folder)
    return folder
