"""Signatures of the code that pages run: the manifest of a bundle, and single candidates.

Input: a private key (PEM; ECDSA on the curve P-256, which WebCrypto has everywhere) and what is
signed.  Output: signatures and the public key, both base64url without padding.  Pages verify with
engine/signatures.js and tune/sources/signed.js.  Needs the extra `sign`.
"""

from __future__ import annotations

import json
import os
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tilewright.base.errors import HostError, UsageError, of_kind
from tilewright.bundle.format import Pointer

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

#: Fields of a candidate that a signature covers, in this order.
CANDIDATE = ("spec", "candidate", "checksum", "schedule", "digest", "tiles", "grains", "scratch")
_WIDTH = 32


@dataclass(frozen=True)
class Signer:
    """A site's private key."""

    key: EllipticCurvePrivateKey

    @property
    def public(self) -> str:
        """The public key as pages take it: the uncompressed point."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        point = self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        return _text(point)

    def sign(self, statement: str) -> str:
        """The signature (r and s, 32 bytes each) of SHA-256 of the statement in UTF-8."""
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA256

        r, s = decode_dss_signature(self.key.sign(statement.encode(), ECDSA(SHA256())))
        return _text(r.to_bytes(_WIDTH, "big") + s.to_bytes(_WIDTH, "big"))

    def pointer(self, pointer: Pointer, name: str, serial: int) -> Pointer:
        """The pointer with a signature of its manifest.  The manifest has the digests of all files,
        so the signature covers them too.

        serial: pages refuse a bundle of this name whose serial is lower than one they have seen
        """
        named = msgspec.structs.replace(pointer, name=name, serial=serial)
        return msgspec.structs.replace(named, signature=self.sign(bundle_statement(named)))

    def signed(self, pointer: Pointer) -> bool:
        """Whether this key signed the pointer."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA256

        try:
            raw = urlsafe_b64decode(f"{pointer.signature or ''}==")
            if _text(raw) != pointer.signature or len(raw) != 2 * _WIDTH:
                return False
            r, s = (int.from_bytes(part, "big") for part in (raw[:_WIDTH], raw[_WIDTH:]))
            statement = bundle_statement(pointer).encode()
            self.key.public_key().verify(encode_dss_signature(r, s), statement, ECDSA(SHA256()))
        except (InvalidSignature, ValueError):
            return False
        return True

    def candidate(self, bundle: str, about: Mapping[str, object]) -> str:
        """The signature of a candidate for the bundle with this manifest digest.

        about: the fields `CANDIDATE`
        """
        return self.sign(candidate_statement(bundle, about))


def next_serial(before: Pointer | None) -> int:
    """A serial number above that of the previous bundle.  It is at least the clock's seconds, so it
    also rises between machines that do not know each other's bundles."""
    seen = before.serial if before and isinstance(before.serial, int) else 0
    return max(seen + 1, int(time.time()))


def bundle_statement(pointer: Pointer) -> str:
    """The text that a bundle's signature covers: a prefix and one line of JSON."""
    return f"tilewright bundle {_line([pointer.name, pointer.serial, pointer.manifest.digest])}"


def candidate_statement(bundle: str, about: Mapping[str, object]) -> str:
    """The text that a candidate's signature covers; `grains` is a mapping by the plan's number."""
    fields = {name: about[name] for name in CANDIDATE}
    grains = of_kind(about["grains"], dict, "no grains by plan")
    fields["grains"] = [[int(plan), grain] for plan, grain in sorted(grains.items())]
    return f"tilewright candidate {bundle} {_line(list(fields.values()))}"


def _line(values: Sequence[object]) -> str:
    """One line of JSON, byte for byte as JavaScript writes it; unset values are null."""
    named = [None if value is msgspec.UNSET else value for value in values]
    return json.dumps(named, separators=(",", ":"), ensure_ascii=False)


def read_signer(path: Path) -> Signer:
    """The key in a PEM file without a password.  Raises UsageError; HostError without `sign`."""
    _require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    hint = "`tilewright keygen FILE` makes one"
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(
            f"Not a private key in PEM without a password: {error}", hint=hint, path=str(path)
        ) from error
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        raise UsageError("The key is not of the curve P-256", hint=hint, path=str(path))
    return Signer(key)


def write_key(path: Path) -> Signer:
    """Makes a key and writes it to a file that only its owner may read.  Raises UsageError if the
    file exists."""
    _require()
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    key = generate_private_key(SECP256R1())
    data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        place = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise UsageError(
            "The file exists; a key is never overwritten", hint="Name another", path=str(path)
        ) from error
    with os.fdopen(place, "wb") as file:
        file.write(data)
    return Signer(key)


def _require() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise HostError(
            "Signing needs the package cryptography",
            hint="Install it with `pip install tilewright[sign]`",
        ) from error


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
