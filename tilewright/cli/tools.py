"""`doctor`: what this machine can run, found out by starting it; `keygen`: a key to sign with.

Input: nothing, or a file to write.  Output: versions, browsers, and the features that our page
really sees; or a private key, and the public one that belongs to it.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.table import Table

from tilewright import __version__
from tilewright.base.errors import HostError, TilewrightError
from tilewright.cli.options import Json
from tilewright.cli.output import Answer, pairs, table

PACKAGES = ("wasmtime", "onnx", "numpy")


def doctor(as_json: Json = False) -> Answer:
    """Show the browsers, features and versions of this machine."""
    del as_json  # every command takes it; the entry point acts on it
    from tilewright.api.host_registry import in_process
    from tilewright.hosts.browser_discovery import KINDS

    about = {
        "tilewright": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu(),
        "cores": os.cpu_count(),
        **{name: _version(name) for name in PACKAGES},
    }
    browsers = [_browser(name) for name in KINDS]
    works = any("features" in b for b in browsers)
    others: dict[str, Callable[[], dict[str, object]]] = {"node": _node, "dawn": _dawn}
    others |= {name: partial(_host, name) for name in in_process()}
    found = {name: _found(name, look) for name, look in others.items()}
    known = pairs({k: v or "missing" for k, v in about.items()})
    view = Group(known, "", _view([*browsers, *found.values()]))
    data = about | {"browsers": browsers} | found
    return Answer(data, view, 0 if works else HostError.exit_code)


def keygen(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Write the key to this file, as PEM.")
    ],
    as_json: Json = False,
) -> Answer:
    """Make a private key to sign bundles and candidates with, and print its public key."""
    del as_json
    from tilewright.bundle.signing import write_key

    data = {"file": str(file), "key": write_key(file).public}
    return Answer(data, pairs(data))


def cpu() -> str:
    """The processor's name as the system gives it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = (x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    return next(named, platform.processor() or "unknown")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _browser(name: str) -> dict[str, object]:
    """Starts the browser once and reports the features that a page really gets."""
    from tilewright.hosts.browser import BrowserHost
    from tilewright.hosts.browser_discovery import require

    found: dict[str, object] = {"name": name}
    try:
        browser = require(name)
        found |= {"path": str(browser.path), "version": browser.version()}
        with BrowserHost(browser) as host:
            return found | {"features": host.info["features"]}
    except TilewrightError as error:
        return found | {"error": error.to_json()}


def _node() -> dict[str, object]:
    from tilewright.hosts.browser_programs import node

    program = node()
    return {"path": str(program.path), "version": program.version()}


def _dawn() -> dict[str, object]:
    """The adapter that Dawn finds."""
    from tilewright.hosts.browser_dawn import require_dawn

    dawn = require_dawn()
    return {"path": str(dawn.path), "version": dawn.version(), "adapter": dict(dawn.adapter)}


def _host(name: str) -> dict[str, object]:
    """A host's engine, with its adapter or device."""
    from tilewright.api.host_registry import engine_of

    return {"version": engine_of(name)}


def _found(name: str, look: Callable[[], dict[str, object]]) -> dict[str, object]:
    """The name with the result of `look`, or with its error."""
    try:
        return {"name": name} | look()
    except TilewrightError as error:
        return {"name": name, "error": error.to_json()}


def _view(browsers: list[dict[str, object]]) -> Table:
    rows = []
    for browser in browsers:
        error, features = browser.get("error"), browser.get("features")
        said = ""
        if isinstance(features, dict):
            flags = {k: v for k, v in features.items() if isinstance(v, bool)}
            said = ", ".join(k if v else f"no {k}" for k, v in flags.items())
        elif isinstance(error, dict):
            said = f"{error['message'].rstrip('.')}. {error['hint']}"
        rows.append((browser["name"], browser.get("version", ""), said))
    return table(("host", "version", "features"), rows)
