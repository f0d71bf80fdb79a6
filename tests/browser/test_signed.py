"""Pages that name a site's key load signed bundles and take signed candidates, and no others."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tilewright.bundle import POINTER, open_bundle
from tilewright.bundle.signing import Signer, write_key
from tilewright.server.static import write_pages
from tilewright.targets.device_classes import find
from tilewright.tuning.candidate_folder import write_candidates

from .bundles import Library
from .conftest import Visit
from .serving import plain
from .test_modes import WIDER, hello_of, write_blank

pytestmark = pytest.mark.by_turns

INPUTS = {"x": [1.0] * 96}


@pytest.fixture(scope="session")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return write_key(tmp_path_factory.mktemp("keys") / "site.pem")


def signed(library: Library, signer: Signer, to: Path, serial: int = 1) -> Path:
    folder = library.copied("linear", to)
    pointer = signer.pointer(open_bundle(folder).pointer, "linear", serial)
    (folder / POINTER).write_bytes(msgspec.json.encode(pointer))
    return folder


def test_only_a_signed_bundle_is_loaded(
    visit: Visit, library: Library, signer: Signer, tmp_path: Path
) -> None:
    folder = signed(library, signer, tmp_path / "site")
    write_pages(folder)
    write_blank(folder)
    stranger = write_key(tmp_path / "stranger.pem")
    with plain(folder) as url:
        page = visit(f"{url}/blank.html")

        def load(**options: str) -> str:
            found = page.do("engine", url=f"{url}/", inputs=INPUTS, options=options)
            return str(found["error"]["code"] if "error" in found else "loaded")

        assert load(key=signer.public) == "loaded"
        assert load() == "loaded"
        assert load(key=stranger.public) == "signature"
        assert load(key="site.pem") == "input"
        assert load(key=signer.public, name="linear") == "loaded"
        assert load(key=signer.public, name="other") == "signature"
        # what the engine kept of the signed one does not vouch for another pointer
        library.copied("linear", tmp_path / "plain")
        (folder / POINTER).write_bytes((tmp_path / "plain" / POINTER).read_bytes())
        assert load(key=signer.public) == "signature"
        assert load() == "loaded"


@pytest.mark.parametrize("whole", [True, False], ids=["signed", "one is not"])
def test_only_signed_candidates_are_taken(
    visit: Visit, library: Library, signer: Signer, tmp_path: Path, whole: bool
) -> None:
    folder = signed(library, signer, tmp_path / "site")
    write_pages(folder)
    write_blank(folder)
    write_candidates(open_bundle(folder), [find(WIDER)], signer=signer if whole else None)
    with plain(folder) as url:
        page = visit(f"{url}/blank.html")
        found = page.do(
            "source",
            base=f"{url}/",
            kind="folder",
            given=f"{url}/tuning/",
            hello=hello_of(open_bundle(folder)),
            count=3,
            signer=signer.public,
        )
    if whole:
        assert all(sent["found"] == sent["digest"] for sent in found["taken"])
    else:
        assert [sent["error"]["code"] for sent in found["taken"]] == ["signature"] * 3
    assert len(found["taken"]) == 3
