"""Finds the installed browsers, and makes command lines that start them without a driver.

Input: "chromium" or "firefox".  Output: a `Browser`: the program, and its command line for a
profile folder and a URL.  Only `--version` is run here.  Also the paths of Chromium's Vulkan loader
and of SwiftShader, its driver that computes on the CPU, for WebGPU hosts on systems without Vulkan.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from ctypes.util import find_library
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.base.errors import HostError, unknown_name

_CHROMIUM_FLAGS = (
    "--headless=new",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-quic",
    "--disable-gpu",
    # The page is in the background but measures, so it must not be throttled.
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    # In containers /dev/shm is often too small for a model.
    "--disable-dev-shm-usage",
    "--no-proxy-server",
    "--mute-audio",
    "--password-store=basic",
    "--use-mock-keychain",
)

#: Seconds that a program may take to say its version.
VERSION_SECONDS = 30

_FIREFOX_SETTINGS: Mapping[str, bool | int | str] = {
    "app.normandy.enabled": False,
    "app.shield.optoutstudies.enabled": False,
    "app.update.disabledForTesting": True,
    "app.update.enabled": False,
    "browser.aboutwelcome.enabled": False,
    "browser.region.update.enabled": False,
    "browser.safebrowsing.downloads.enabled": False,
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
    "browser.sessionstore.resume_from_crash": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.homepage_override.mstone": "ignore",
    "browser.startup.page": 0,
    "datareporting.healthreport.uploadEnabled": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "dom.min_background_timeout_value": 4,
    "dom.timeout.enable_budget_timer_throttling": False,
    "extensions.getAddons.cache.enabled": False,
    "extensions.update.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "network.proxy.type": 0,
    "startup.homepage_welcome_url": "",
    "toolkit.startup.max_resumed_crashes": -1,
    "toolkit.telemetry.reportingpolicy.firstRun": False,
    "trailhead.firstrun.didSeeAboutWelcome": True,
}


@dataclass(frozen=True)
class Kind:
    """How one kind of browser is found and started.

    variable: environment variable with a path;  names, places: programs to look for otherwise
    package:  Debian's;  command, prepare: for a profile folder
    """

    variable: str
    names: tuple[str, ...]
    places: tuple[str, ...]
    package: str
    command: Callable[[Path], list[str]]
    prepare: Callable[[Path], None]


@dataclass(frozen=True)
class Browser:
    """An installed browser; `flags` come after the default ones and may override them.

    name:        of the host: the browser's, perhaps with a suffix for its flags ("firefox-x")
    device:      what pages run bundles on; None: the engine's own choice
    environment: additional variables of its process
    """

    name: str
    path: Path
    flags: tuple[str, ...] = ()
    device: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, compare=False)

    def command(self, profile: Path, url: str) -> list[str]:
        """The command line that opens `url` with this profile; also prepares the profile."""
        kind = KINDS[self.name.partition("-")[0]]
        kind.prepare(profile)
        return [str(self.path), *kind.command(profile), *self.flags, url]

    def version(self) -> str:
        """The output of `--version`; "" if that fails."""
        try:
            done = subprocess.run(
                [str(self.path), "--version"],
                capture_output=True,
                text=True,
                timeout=VERSION_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        lines = done.stdout.strip().splitlines()
        return lines[-1].strip() if lines else ""


def find(name: str) -> Browser | None:
    """The browser, or None.  A path in the environment takes precedence over the usual names.

    Raises HostError if that path is not a program, UsageError for an unknown browser.
    """
    kind = _kind(name)
    named = os.environ.get(kind.variable)
    if named:
        path = shutil.which(named)
        if path is None:
            raise HostError(
                f"{kind.variable} is not a program: {named}",
                hint="Correct or remove the variable",
                host=name,
            )
        return Browser(name, Path(path))
    found = next(filter(None, map(shutil.which, (*kind.names, *kind.places))), None)
    return Browser(name, Path(found)) if found else None


def require(name: str) -> Browser:
    """The browser.  Raises as `find`, and HostError with installation advice if there is none."""
    browser = find(name)
    if browser is None:
        kind = _kind(name)
        raise HostError(
            f"{name.capitalize()} is not installed",
            hint=f"Install it (Debian: apt-get install {kind.package}) or set {kind.variable} "
            "to its path",
            host=name,
            looked_for=", ".join(kind.names),
        )
    return browser


def _kind(name: str) -> Kind:
    if name not in KINDS:
        raise unknown_name("browser", name, KINDS)
    return KINDS[name]


def _chromium_command(profile: Path) -> list[str]:
    # Chromium's sandbox does not work for root, the usual user in containers.
    sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [*_CHROMIUM_FLAGS, *sandbox, f"--user-data-dir={profile}"]


def _firefox_command(profile: Path) -> list[str]:
    return ["--headless", "--no-remote", "--profile", str(profile)]


def _firefox_prepare(profile: Path) -> None:
    profile.mkdir(parents=True, exist_ok=True)
    (profile / "user.js").write_text(
        "".join(f'user_pref("{k}", {_js(v)});\n' for k, v in _FIREFOX_SETTINGS.items())
    )


def _js(value: bool | int | str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _chromium_prepare(profile: Path) -> None:
    profile.mkdir(parents=True, exist_ok=True)


KINDS: Mapping[str, Kind] = {
    "chromium": Kind(
        variable="TILEWRIGHT_CHROMIUM",
        names=("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
        places=(
            "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
            "/Applications/Chromium.app/Contents/MacOS/Chromium",
        ),
        package="chromium",
        command=_chromium_command,
        prepare=_chromium_prepare,
    ),
    "firefox": Kind(
        variable="TILEWRIGHT_FIREFOX",
        names=("firefox-esr", "firefox"),
        places=("/Applications/Firefox.app/Contents/MacOS/firefox",),
        package="firefox-esr",
        command=_firefox_command,
        prepare=_firefox_prepare,
    ),
}


def vulkan_loader() -> Path | None:
    """The path of Chromium's loader; None if the system has a loader, or if there is no
    Chromium."""
    return None if find_library("vulkan") else _beside_chromium("libvulkan.so.1")


def vulkan_software() -> Path | None:
    """The path of the software driver, for VK_ICD_FILENAMES or VK_ADD_DRIVER_FILES."""
    return _beside_chromium("vk_swiftshader_icd.json")


def _beside_chromium(file: str) -> Path | None:
    return next((f / file for f in _folders() if (f / file).is_file()), None)


def _folders() -> Iterator[Path]:
    browser = find("chromium")
    if browser is not None:
        yield browser.path.resolve().parent
        # Debian's program is a script that starts the one in this folder.
        yield Path("/usr/lib") / browser.path.name
