"""A kernel database in which a crowd has agreed: what a known class of devices starts with.

Input: a bundle, a class, candidates by kernel.  Output: the URL of a database with these defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tilewright.bundle import Bundle
from tilewright.server.reports import key_of
from tilewright.store import KernelStore, StoredReport, StoredVote
from tilewright.targets.device_classes import find
from tilewright.tuning.candidates import space_of
from tilewright.tuning.catalogue import kernels_of

VOICES = 16


def agreed(
    folder: Path,
    bundle: Bundle,
    device: str,
    winners: Mapping[int, int],
    browsers: tuple[str, ...] = ("chromium", "firefox"),
) -> str:
    """`winners`: number of the kernel → candidate; all devices found it a third faster."""
    url = f"sqlite:///{folder / 'kernels.db'}"
    kernels = kernels_of(bundle)
    with KernelStore.open(url) as store:
        for browser in browsers:
            for spec, candidate in winners.items():
                key = key_of(space_of(kernels[spec], find(device)), browser)
                for voice in range(VOICES):
                    nonce = f"{device}-{browser}-{spec}-{voice:02d}"
                    found = (StoredVote(candidate, 1.3 + voice % 3 / 100),)
                    report = StoredReport(nonce, key, found, answers=found)
                    assert store.submit(report, f"source-{voice}").accepted
                assert store.standing(key).default == candidate
    return url
