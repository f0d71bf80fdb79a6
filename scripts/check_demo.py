"""Drives the demo pages in Chromium and Firefox and prints rankings, latency and what was seen.

Input: --url of a running demo.  Output: results for people; exit code 1 if a browser failed, if a
query's best sentence or score is not the expected one, if the text in the camera page's sample was
not found, or if the browsers differ.  The pages are operated by scripts/drive_page.mjs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tilewright.base.errors import TilewrightError
from tilewright.hosts.browser_discovery import KINDS, require

DRIVER = Path(__file__).with_name("drive_page.mjs")
SHOWN = 3
SECONDS = 300

# Queries with the best sentence and its score, by onnxruntime on the same file.
QUERIES = {
    "How do plants turn light into energy?": ("Solar panels turn light straight into", 0.5911),
    "how do green plants make their own food": ("Leaves catch sunlight and use it to", 0.4743),
    "why does dough get bigger": ("Bread dough rises because yeast gives", 0.6523),
}
SCORE_TOLERANCE = 0.001
SEEN = "6 areas of text"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    url = parser.parse_args().url
    found = {name: drive(name, url) for name in KINDS}
    problems = [f"{name}: {p}" for name, page in found.items() for p in judge(page)]
    orders = [[order(r) for r in page.get("rankings", ())] for page in found.values()]
    if not problems and any(o != orders[0] for o in orders):
        problems.append("the browsers rank differently")
    for name, page in found.items():
        print("\n".join(report(name, page)))
    for problem in problems:
        print(f"FAILED  {problem}", file=sys.stderr)
    return 1 if problems else 0


def drive(name: str, url: str) -> dict[str, Any]:
    """The JSON of drive_page.mjs, or {"failure": reason}."""
    queries = [word for query in QUERIES for word in ("--query", query)]
    try:
        environment = os.environ | {KINDS[name].variable: str(require(name).path)}
        done = subprocess.run(
            ["node", str(DRIVER), "--browser", name, "--url", url, "--camera", *queries],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=environment,
        )
        page: dict[str, Any] = json.loads(done.stdout)
    except (TilewrightError, subprocess.TimeoutExpired) as error:
        return {"failure": str(error)}
    except json.JSONDecodeError:
        return {"failure": done.stderr.strip() or f"exit code {done.returncode}"}
    return page if done.returncode == 0 else page | {"failure": f"exit code {done.returncode}"}


def judge(page: dict[str, Any]) -> list[str]:
    """Errors in a page's results."""
    said = [f"the page reports: {e}" for e in page.get("errors", ())]
    status = page.get("status", {})
    if status.get("state") == "error":
        said.append(f"{status.get('text', '')} {status.get('hint', '')}")
    if "failure" in page:
        return [*said, str(page["failure"])]
    for ranking in page["rankings"]:
        best = ranking["ranking"][0]
        words, score = QUERIES[ranking["query"]]
        if words not in best["text"] or abs(best["score"] - score) > SCORE_TOLERANCE:
            said.append(f"{ranking['query']!r} found {best}, not {words!r} with {score}")
    if page["seen"]["text"] != SEEN:
        said.append(f"the camera page found {page['seen']}, not {SEEN!r}")
    return said


def order(ranking: dict[str, Any]) -> list[str]:
    return [hit["text"] for hit in ranking["ranking"]]


def report(name: str, page: dict[str, Any]) -> list[str]:
    if not page.get("rankings"):
        return [f"{name}: no answer"]
    latency = page["latency"]
    lines = [
        f"{page.get('browser', name)}: {latency['median']:.2f} ms per sentence "
        f"(median of {latency['runs']} runs), {page.get('variant')}, loaded in {page.get('load')}"
    ]
    for ranking in page["rankings"]:
        lines.append(f"  {ranking['query']}")
        lines += [f"    {hit['score']:.4f}  {hit['text']}" for hit in ranking["ranking"][:SHOWN]]
    seen = page["seen"]
    return [*lines, f"  /camera: {seen['text']}, {seen['time']}, {seen['device']}"]


if __name__ == "__main__":
    sys.exit(main())
