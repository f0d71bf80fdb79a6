"""Finding Dawn, with a stand-in for Node that says which adapter there is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli_call import LabCalled

from tilewright.base.errors import HostError, UsageError
from tilewright.hosts.browser_dawn import PACKAGE, require_dawn
from tilewright.hosts.browser_programs import PROGRAMS, SECTIONS, program

GPU = {"vendor": "v", "architecture": "a", "device": "d", "description": "A GPU"}
FAKE = """#!/bin/sh
echo "$*" >> "{folder}/asked"
{act}
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an empty package, and a Node that `says` makes."""
    package = tmp_path / "webgpu"
    package.mkdir()
    (package / "index.js").touch()
    (package / "package.json").write_text('{"name": "webgpu", "version": "1.2.3"}')
    monkeypatch.setenv("TILEWRIGHT_DAWN", str(package))
    monkeypatch.setenv("TILEWRIGHT_NODE", str(tmp_path / "node"))
    for name in ("VK_ICD_FILENAMES", "TILEWRIGHT_DAWN_OPTIONS", "TILEWRIGHT_CHROMIUM"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def says(folder: Path, act: str) -> None:
    (folder / "node").write_text(FAKE.format(folder=folder, act=act))
    (folder / "node").chmod(0o755)


def with_chromium(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed Chromium with a software driver beside it."""
    place = folder / "chrome"
    place.mkdir()
    shutil.copy(shutil.which("true") or "/bin/true", place / "chrome")
    (place / "vk_swiftshader_icd.json").write_text("{}")
    monkeypatch.setenv("TILEWRIGHT_CHROMIUM", str(place / "chrome"))
    return place / "vk_swiftshader_icd.json"


def test_an_adapter(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one is taken: no software driver is even asked for."""
    with_chromium(fake, monkeypatch)
    monkeypatch.setenv("TILEWRIGHT_DAWN_OPTIONS", "backend=vulkan enable-dawn-features=a,b")
    says(fake, f"echo '{json.dumps(GPU | {'software': False})}'")
    dawn = require_dawn()
    assert "VK_ICD_FILENAMES" not in dawn.environment
    assert (dawn.adapter["description"], dawn.version()) == ("A GPU", "webgpu 1.2.3 (GPU: A GPU)")
    *_, package, words, url = dawn.command(fake / "profile", "http://here/")
    assert (package, url) == (str(fake / "webgpu"), "http://here/")
    assert words == "backend=vulkan enable-dawn-features=a,b"
    (asked,) = (fake / "asked").read_text().splitlines()
    assert asked.endswith(f"{package} {words} probe")


def test_a_software_driver_is_second(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = with_chromium(fake, monkeypatch)
    found = json.dumps(GPU | {"software": True})
    says(fake, f"[ -n \"$VK_ICD_FILENAMES\" ] && echo '{found}' || echo null")
    dawn = require_dawn()
    assert dawn.environment["VK_ICD_FILENAMES"] == str(driver)
    assert dawn.version() == "webgpu 1.2.3 (software: A GPU)"


def test_no_adapter(fake: Path) -> None:
    says(fake, "echo null")
    with pytest.raises(HostError, match=r"no WebGPU adapter.*driver") as caught:
        require_dawn()
    assert caught.value.facts["host"] == "dawn"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("rubbish", "Known keys are enable-dawn-features"),
        ("enable-dawn-feature=allow_unsafe_apis", "Did you mean enable-dawn-features"),
        ("Backend=vulkan", "Did you mean backend"),
        ("backend=vulcan", "opengles"),
        ("backend=", "KEY=VALUE"),
        ("enable-dawn-features=use_dxc,allow_unsafe_api", "Did you mean allow_unsafe_apis"),
        ("disable-dawn-features=nope", "lists Dawn's toggles"),
        ("disable-dawn-features=use_dxc,,", "lists Dawn's toggles"),
        ("enable-dawn-features=ALLOW_UNSAFE_APIS", "Did you mean allow_unsafe_apis"),
        ("verbose=ja", "verbose=1"),
    ],
)
def test_a_word_that_dawn_does_not_know(
    fake: Path, monkeypatch: pytest.MonkeyPatch, word: str, hint: str
) -> None:
    """Dawn itself would say nothing, or something else; it is not even started."""
    library = fake / "webgpu" / "dist" / "linux-x64" / "dawn.node"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"\x7fELF\0allow_unsafe_apis\0https://crbug.com/1\0use_dxc\0")
    says(fake, f"echo '{json.dumps(GPU | {'software': False})}'")
    monkeypatch.setenv("TILEWRIGHT_DAWN_OPTIONS", f"backend=vulkan {word}")
    with pytest.raises(UsageError, match="TILEWRIGHT_DAWN_OPTIONS has the word") as caught:
        require_dawn()
    assert caught.value.facts["word"] == word
    assert hint in caught.value.hint
    assert not (fake / "asked").exists()
    good = "verbose=1 adapter=llvm enable-dawn-features=allow_unsafe_apis,use_dxc"
    monkeypatch.setenv("TILEWRIGHT_DAWN_OPTIONS", good)
    assert require_dawn().options == tuple(good.split())


def test_a_node_that_fails(fake: Path) -> None:
    says(fake, "echo no such flag >&2; exit 9")
    with pytest.raises(HostError, match=r"could not be started.*npm install webgpu") as caught:
        require_dawn()
    assert caught.value.facts["stderr"] == "no such flag"


def test_missing_programs(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HostError, match=r"Node is not installed.*TILEWRIGHT_NODE"):
        require_dawn()
    says(fake, "echo null")
    monkeypatch.setenv("TILEWRIGHT_DAWN", str(fake))
    with pytest.raises(HostError, match=r"Dawn is not installed.*npm install webgpu@"):
        require_dawn()


def test_the_named_version_is_the_tested_one() -> None:
    root = Path(__file__).parents[2]
    pinned = json.loads((root / "package.json").read_text())["devDependencies"]["webgpu"]
    assert f"webgpu@{pinned}" == PACKAGE
    assert PACKAGE in (root / "docs" / "hosts.md").read_text()


def test_names() -> None:
    assert SECTIONS.keys() < PROGRAMS.keys()
    with pytest.raises(UsageError, match=r"Unknown browser: opera.*dawn"):
        program("opera")


@pytest.mark.parametrize("host", SECTIONS)
def test_what_such_hosts_cannot_do_yet(capsys: pytest.CaptureFixture[str], host: str) -> None:
    called = LabCalled(capsys, "primitives", "--host", host, "--json")
    assert (called.code, called.json["error"]["code"]) == (2, "usage")
