"""A stand-in for a browser: opens the host page's WebSocket and answers by the protocol.

Input: the address as last argument, FAKE_MODE in the environment.  Output: echoes.  It lets the
tests see what the host does when a browser dies or stays silent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from websockets.sync.client import ClientConnection, connect

MODE = os.environ.get("FAKE_MODE", "")
URL = urlsplit(sys.argv[-1])
STUBBORN = """
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
place = pathlib.Path(os.environ["FAKE_CHILD"])
place.with_suffix(".part").write_text(str(os.getpid()))
place.with_suffix(".part").rename(place)
time.sleep(3600)
"""

#: Of its second kernel.
FIXED = "extents" if MODE == "extents" else ""

NONE = {"verdict": "none", "text": "no kernel changed, so no gain"}
GAIN = {
    "verdict": "faster", "plan": 0, "bucket": {}, "kernels": 1, "pairs": 16,
    "ratio": 1.136, "low": 1.12, "high": 1.15, "own": 10.0, "tuned": 8.8,
    "text": "1.14× as fast as with the bundle's own kernels (…): 10.00 → 8.80 ms",
}  # fmt: skip


def main() -> None:
    if MODE == "die":
        sys.exit("cannot open display")
    if MODE == "silent":
        time.sleep(3600)
    if MODE == "child":
        # It does not react to SIGTERM and outlives this process unless the group is killed.
        subprocess.Popen([sys.executable, "-c", STUBBORN])
        while not Path(os.environ["FAKE_CHILD"]).exists():
            time.sleep(0.01)
    token = parse_qs(URL.query)["token"][0]
    with connect(f"ws://{URL.netloc}/_host/socket?token={token}", max_size=None) as socket:
        protocol = 99 if MODE == "protocol" else 1
        hello = {"protocol": protocol, "userAgent": "fake", "features": {"simd": True}}
        socket.send(json.dumps({"hello": hello}))
        for text in socket:
            answer(socket, json.loads(text))


def answer(socket: ClientConnection, ask: dict) -> None:
    number, params = ask["id"], ask["params"]
    frames = [socket.recv() for _ in params.get("inputs", ())]
    if ask["method"] == "tune":
        tune(socket, number, params)
        return
    if ask["method"] == "load":
        for _ in range(4 if MODE == "slow" else 1):
            time.sleep(0.2 if MODE == "slow" else 0)  # the host looks more often than that
            socket.send(json.dumps({"progress": {"id": number, "loadedBytes": 1}}))
        info = {"url": params["url"], "options": params["options"]}
        # Names as in ARRAYS of test_server_browser_host.py.
        types = {"f32": "f32", "i64": "i64", "bool": "bool", "empty": "f32", "scalar": "i32"}
        types |= {"big endian": "f32", "half": "f32"}
        info["inputs"] = [{"name": n, "dtype": t, "shape": []} for n, t in types.items()]
        info |= {"name": "fake", "features": {"threads": params["options"].get("threads", 1)}}
        result = {"handle": 1, "info": info, "states": []}
    elif ask["method"] == "run":
        if MODE == "crash":
            sys.exit("out of memory")
        if MODE == "hang":
            time.sleep(3600)
        if MODE in ("input", "disposed"):
            error = {"code": MODE, "message": "Said so", "hint": "Do", "facts": {"input": "x"}}
            socket.send(json.dumps({"id": number, "error": error}))
            return
        times = {"bucket": {"n": 16}, "milliseconds": 1.0, "run": 1}
        times |= {"firstMilliseconds": 3.0, "totalMilliseconds": 2.0}
        result = {"outputs": params["inputs"], **times}
    elif ask["method"] == "profile":
        times = [(3, 0.5), (5, 0.2), (3, 0.5), (8, 0.9)]
        result = {"steps": [{"spec": s, "milliseconds": t} for s, t in times]}
    elif ask["method"] == "asset":
        frames = [b"file"]
        about = {"name": params["name"], "dtype": "u8", "shape": [4], "bytes": 4}
        result = {"asset": about}
    else:
        result = {}
    socket.send(json.dumps({"id": number, "result": result}))
    for frame in frames:
        socket.send(frame)


def tune(socket: ClientConnection, number: int, params: dict) -> None:
    """A session of two kernels; with FAKE_MODE=tune it goes on until it is aborted,
    with early it knows nothing by then; with default no kernel is exchanged, with extents one
    cannot be; with replaced one took a wrong one's place, and nobody measured it.  It reports
    nothing.
    """

    def tell(**event: object) -> None:
        socket.send(json.dumps({"progress": {"id": number, "event": event}}))

    if MODE == "early":
        nothing = {"rounds": 0, "seconds": 0.0, "class": "", "kernels": []}
        aborted = begun(socket)
        finish(socket, number, nothing | {"latency": None, "gain": NONE}, aborted)
        return
    share = 0.9 if MODE == "replaced" else 0.6
    named = [
        {"spec": 3, "kind": "matmul", "shape": "16x384x384", "node": "a/MatMul", "share": share},
        {"spec": 5, "kind": "rows", "shape": "16x384", "node": "a/Softmax", "share": 0.1},
    ]
    tell(type="sent", message={"type": "hello"})
    tell(type="start", **{"class": "wasm-x86-relaxed-32k"}, kernels=named)
    tell(type="latency", round=0, milliseconds=10.0)
    for at, (verdict, ratio) in enumerate([("slower", 0.8), ("faster", 1.25), ("wrong", 1.0)]):
        about = {"round": at + 1, "spec": 3, "candidate": at + 6, "schedule": f"x0={at}"}
        tell(type="trial", verdict=verdict, ratio=ratio, **about)
        if verdict == "faster" and MODE != "default":
            tell(type="swap", spec=3, candidate=7, ratio=ratio)
            tell(type="latency", round=at + 1, milliseconds=8.8)
    aborted = begun(socket)
    default = {"candidate": 0, "milliseconds": 2.0, "gflops": 20.0}
    current = {"candidate": 7, "schedule": "x0=1", "milliseconds": 1.6, "gflops": 25.0}
    changed, gain = MODE != "default", None if MODE == "replaced" else 1.25
    kernels = [
        {"spec": 3, "kind": "matmul", "shape": "16x384x384", "fixed": "", "node": "a/MatMul"}
        | {"default": default, "current": current if changed else default}
        | {"gain": gain if changed else 1.0, "tried": 3},
        {"spec": 5, "kind": "rows", "shape": "16x384", "fixed": FIXED, "node": "a/Softmax"}
        | {"default": default, "current": default, "gain": 1.0, "tried": 0},
    ]
    summary = {
        "rounds": 3, "seconds": 0.5, "class": "wasm-x86-relaxed-32k",
        "kernels": kernels, "latency": 8.8, "gain": GAIN if changed else NONE,
        "asked": params["options"],
    }  # fmt: skip
    tell(type="sent", message={"type": "bye"})
    finish(socket, number, summary, aborted)


def begun(socket: ClientConnection) -> dict | None:
    """Says so to the test; with FAKE_MODE=tune or early, what aborted it."""
    if "FAKE_TOLD" in os.environ:
        Path(os.environ["FAKE_TOLD"]).touch()
    return json.loads(socket.recv()) if MODE in ("tune", "early") else None


def finish(socket: ClientConnection, number: int, summary: dict, aborted: dict | None) -> None:
    if aborted:
        assert aborted["method"] == "abort"
        assert aborted["params"] == {"request": number}
        socket.send(json.dumps({"id": aborted["id"], "result": {"aborted": True}}))
    socket.send(json.dumps({"id": number, "result": {"summary": summary}}))


if __name__ == "__main__":
    main()
