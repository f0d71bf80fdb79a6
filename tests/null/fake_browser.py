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
time.sleep(60)
"""


def main() -> None:
    if MODE == "die":
        sys.exit("cannot open display")
    if MODE == "silent":
        time.sleep(60)
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
    if ask["method"] == "load":
        for _ in range(4 if MODE == "slow" else 1):
            time.sleep(0.4 if MODE == "slow" else 0)
            socket.send(json.dumps({"progress": {"id": number, "loadedBytes": 1}}))
        result = {"handle": 1, "info": {"url": params["url"], "options": params["options"]}}
    elif ask["method"] == "run":
        if MODE == "crash":
            sys.exit("out of memory")
        if MODE == "hang":
            time.sleep(60)
        if MODE in ("input", "disposed"):
            error = {"code": MODE, "message": "Said so", "hint": "Do", "facts": {"input": "x"}}
            socket.send(json.dumps({"id": number, "error": error}))
            return
        times = {"bucket": {"n": 16}, "milliseconds": 1.0, "run": 1}
        times |= {"firstMilliseconds": 3.0, "totalMilliseconds": 2.0}
        result = {"outputs": params["inputs"], **times}
    elif ask["method"] == "asset":
        frames = [b"file"]
        about = {"name": params["name"], "dtype": "u8", "shape": [4], "bytes": 4}
        result = {"asset": about}
    else:
        result = {}
    socket.send(json.dumps({"id": number, "result": result}))
    for frame in frames:
        socket.send(frame)


if __name__ == "__main__":
    main()
