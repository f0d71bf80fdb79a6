"""How large what a visitor downloads is: the engine's JavaScript and a bundle's code.

Input: a bundle.  Output: results/sizes.json.

    uv run python benchmarks/sizes.py .demo/bundle
"""

from __future__ import annotations

import argparse
from pathlib import Path

import common

from tilewright.bundle import open_bundle

ENGINE = Path(__file__).parents[1] / "tilewright" / "web" / "engine"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    args = parser.parse_args()
    manifest = open_bundle(args.bundle).manifest
    engine = sum(p.stat().st_size for p in ENGINE.glob("*.js"))
    builds = [(c.variant, c.bytes) for c in manifest.code]
    rows = [{"what": "engine, JavaScript with comments", "bytes": engine, "limit": 60_000}]
    for label, size in builds:
        code = size + manifest.driver.bytes
        rows.append({"what": f"{manifest.name} code: {label}", "bytes": code, "limit": 300_000})
    for row in rows:
        print(row)
    print(common.save("sizes", rows))


if __name__ == "__main__":
    main()
