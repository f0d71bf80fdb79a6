"""Signatures by a site's key: made in Python, verified by the JavaScript that pages run."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path
from typing import Any

import msgspec
import node
import pytest
from bundle_factory import sample
from cli_call import Called
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from test_tune_relinked import relinked
from tuning_client import Client, hello
from tuning_site import app, bundle, digest
from tuning_votes import agree, site

from tilewright.base.errors import UsageError
from tilewright.bundle import POINTER, open_bundle, write
from tilewright.bundle.signing import CANDIDATE, Signer, read_signer, write_key
from tilewright.server import BackgroundServer, async_store
from tilewright.targets.device_classes import find
from tilewright.tuning.candidate_folder import FOLDER, INDEX, write_candidates

OTHER = "0" * 64

#: What each of the candidates comes to, each with a source of its own.
CANDIDATES = """
const { signedSource } = await import('TUNE/sources/signed.js');
const outcomes = [];
for (const { key, bundle, header, module } of <given>) {
  const sent = { header, module: Uint8Array.from(module) };
  const source = signedSource({ open: async () => 'welcome', next: async () => sent }, key);
  await source.open({ digest: bundle });
  const taken = (found) => (found === sent ? 'taken' : 'other');
  outcomes.push(await source.next().then(taken, ({ code }) => code));
}
console.log(JSON.stringify(outcomes));
"""
POINTERS = """
const { requireSigned } = await import('TUNE/../engine/signatures.js');
const { EngineError } = await import('TUNE/../engine/errors.js');
const outcomes = [];
for (const [key, pointer] of <given>) {
  const asked = requireSigned(key, pointer, undefined, null, EngineError);
  outcomes.push(await asked.then(() => 'taken', ({ code }) => code));
}
console.log(JSON.stringify(outcomes));
"""


#: Bundles that one origin loads after another, and the names that it expects.
VISITS = """
const { requireSigned } = await import('TUNE/../engine/signatures.js');
const { EngineError } = await import('TUNE/../engine/errors.js');
const kept = new Map();
const find = async (name) => kept.get(name) ?? null;
const store = { find, keep: async (name, bytes) => { kept.set(name, bytes); } };
const outcomes = [];
for (const [key, pointer, name] of <given>) {
  const asked = requireSigned(key, pointer, name ?? undefined, store, EngineError);
  const refused = ({ code, facts }) => `${code} ${facts.seen ?? facts.expected}`;
  outcomes.push(await asked.then(() => 'taken', refused));
}
console.log(JSON.stringify(outcomes));
"""


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return write_key(tmp_path_factory.mktemp("keys") / "site.pem")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return write_key(tmp_path_factory.mktemp("keys") / "stranger.pem")


def signed_copy(to: Path, signer: Signer) -> Path:
    """The bundle with a signature, as `build --sign-with` leaves it."""
    shutil.copytree(bundle(), to)
    pointer = open_bundle(to).pointer
    (to / POINTER).write_bytes(msgspec.json.encode(signer.pointer(pointer, "m", 1)))
    return to


def test_a_key_is_made_once_for_its_owner(tmp_path: Path) -> None:
    place = tmp_path / "site.pem"
    made = write_key(place)
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert read_signer(place).public == made.public
    before = place.read_bytes()
    with pytest.raises(UsageError, match="never overwritten"):
        write_key(place)
    assert place.read_bytes() == before


def test_only_plain_keys_of_the_curve_are_read(tmp_path: Path) -> None:
    plain, locked = NoEncryption(), BestAvailableEncryption(b"secret")
    for key, protection in (
        (rsa.generate_private_key(65537, 2048), plain),
        (ec.generate_private_key(ec.SECP384R1()), plain),
        (ec.generate_private_key(ec.SECP256R1()), locked),
        (None, plain),
    ):
        place = tmp_path / "key.pem"
        data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection) if key else b"key"
        place.write_bytes(data)
        with pytest.raises(UsageError, match="keygen"):
            read_signer(place)


def test_a_signed_pointer(signer: Signer, stranger: Signer) -> None:
    plain = open_bundle(bundle()).pointer
    good = msgspec.to_builtins(signer.pointer(plain, "m", 7))
    other = good | {"manifest": good["manifest"] | {"digest": OTHER}}
    assert signer.signed(signer.pointer(plain, "m", 7))
    assert not signer.signed(plain)
    assert not signer.signed(stranger.pointer(plain, "m", 7))
    # Pages refuse letters that are none of base64url, and so does Python.
    for junk in ("!", "\n", "==", "AA"):
        loose = good | {"signature": good["signature"] + junk}
        assert not signer.signed(msgspec.convert(loose, type(plain)))
    cases = {
        "taken": [(signer.public, good)],
        "signature": [
            (signer.public, msgspec.to_builtins(plain)),
            (signer.public, other),
            (signer.public, msgspec.to_builtins(stranger.pointer(plain, "m", 7))),
            (stranger.public, good),
            (signer.public, good | {"signature": good["signature"][:-2]}),
            (signer.public, good | {"signature": "no base64, this"}),
            (signer.public, good | {"signature": 7}),
            (signer.public, good | {"name": "other"}),
            (signer.public, good | {"serial": 8}),
            (signer.public, {k: v for k, v in good.items() if k != "name"}),
        ],
        "input": [(key, good) for key in ("", "key", signer.public[:-4], "A" * 87)],
    }
    found = node.run(POINTERS, given=[case for row in cases.values() for case in row])
    assert found == [code for code, row in cases.items() for _ in row]


def test_a_bundle_of_another_name_or_an_older_one_is_refused(signer: Signer) -> None:
    plain = open_bundle(bundle()).pointer

    def visit(name: str, serial: int, expected: str | None = None) -> tuple[Any, ...]:
        return signer.public, msgspec.to_builtins(signer.pointer(plain, name, serial)), expected

    visits = {
        "taken": visit("a", 7, "a"),
        "signature b": visit("a", 8, "b"),
        "taken again": visit("a", 7),
        "taken newer": visit("a", 9),
        "signature 9": visit("a", 8),
        "taken other": visit("b", 1),
    }
    found = node.run(VISITS, given=list(visits.values()))
    assert found == [want if want.startswith("s") else "taken" for want in visits]


def test_serials_rise(signer: Signer, tmp_path: Path) -> None:
    seen = []
    for _ in range(3):
        write(sample(), tmp_path, signer)
        pointer = open_bundle(tmp_path).pointer
        assert signer.signed(pointer)
        assert pointer.name == open_bundle(tmp_path).manifest.name
        seen.append(pointer.serial)
    assert seen == sorted(set(seen))


def test_a_server_signs_its_candidates(signer: Signer, stranger: Signer) -> None:
    """Whatever of a candidate another hand changes, the page refuses it."""
    with BackgroundServer(app(signer=signer)) as server, Client(server.url) as client:
        client.start(hello("m", digest()))
        client.want(2)
        sent = [(msgspec.to_builtins(client.kernel()), list(client.payload)) for _ in range(2)]
    (header, module), (other, other_module) = sent

    def case(key: Signer = signer, of: str = digest(), module: Any = module, **new: Any) -> Any:
        return {"key": key.public, "bundle": of, "header": header | new, "module": module}

    changed: dict[str, Any] = {
        "spec": header["spec"] + 1,
        "candidate": other["candidate"],
        "checksum": "0" * 16,
        "schedule": other["schedule"],
        "tiles": header["tiles"] + 1,
        "grains": {plan: grain + 1 for plan, grain in header["grains"].items()},
        "scratch": header["scratch"] + 8,
        "signature": other["signature"],
    }
    # the digest is computed from what came
    assert changed.keys() == {*CANDIDATE, "signature"} - {"digest"}
    bad = [
        *(case(**{name: value}) for name, value in changed.items()),
        case(module=other_module),
        case(module=[*module[:-1], module[-1] ^ 1]),
        case(stranger),
        case(of=OTHER),
        case(signature=""),
    ]
    good = [case(), case(mark="other"), case(**other, module=other_module)]
    found = node.run(CANDIDATES, given=[*good, *bad])
    assert found == ["taken"] * len(good) + ["signature"] * len(bad)


def test_lists_of_a_static_build_are_signed(signer: Signer, tmp_path: Path) -> None:
    folder = signed_copy(tmp_path / "site", signer)
    write_candidates(open_bundle(folder), [find("wasm")], signer=signer)
    index = msgspec.json.decode((folder / FOLDER / INDEX).read_bytes())
    listed = msgspec.json.decode((folder / FOLDER / index["spaces"]["wasm"]["file"]).read_bytes())
    given = []
    for kernel in listed["kernels"]:
        for candidate, about in enumerate(kernel["candidates"]):
            if about is None:
                continue
            named = {"spec": kernel["spec"], "candidate": candidate}
            module = (folder / FOLDER / f"blobs/{about['digest']}.wasm").read_bytes()
            given.append({
                "key": signer.public,
                "bundle": digest(),
                "header": about | named | {"checksum": kernel["checksum"]},
                "module": list(module),
            })  # fmt: skip
    found = node.run(CANDIDATES, given=given[:: max(1, len(given) // 20)])
    assert len(found) >= 20
    assert set(found) == {"taken"}
    assert all("signature" in one["header"] for one in given)


def test_relinked_bundles_are_signed(
    signer: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_store, "FRESH", 0.0)
    with site(f"sqlite:///{tmp_path}/store.db", signer=signer) as server:
        agree(server.url, {3: 1.5})
        found = relinked(server.url)
    assert node.run(POINTERS, given=[(signer.public, found)]) == ["taken"]


def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A key is made, and what it did not sign is not served in its name."""
    made = Called(capsys, "keygen", tmp_path / "site.pem", "--json").json
    assert made["key"] == read_signer(tmp_path / "site.pem").public
    served = Called(capsys, "serve", bundle(), "--sign-with", tmp_path / "site.pem", "--json")
    assert served.code == UsageError.exit_code
    assert "not signed by this key" in served.out
