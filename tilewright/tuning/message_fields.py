"""The meaning of each field of a page's messages, and of what the store keeps of a report.

Input: none.  Output: tables of text, for `reports preview`.  The messages are records in
messages.py; the page decides which of them it sends (web/tune/sources/socket.js).
"""

from __future__ import annotations

from collections.abc import Mapping

#: Messages that are sent only if results are shared.  The others are sent by every page that tunes
#: with a server.
#: others.
SHARED = ("result", "report")

#: The meaning of each field, by message.
FIELDS: Mapping[str, Mapping[str, str]] = {
    "hello": {
        "protocol": "version of the protocol",
        "bundle": "name under which the server has the bundle that the page loaded",
        "digest": "SHA-256 of its manifest",
        "device": "id of a class of devices: one of the public list at /api/classes",
        "browser": "family of the browser: chromium, firefox, safari, wasmtime or other",
        "variant": "which variant of the bundle's code runs",
        "features": "what kernels may use of the device beyond its class: names from the list that "
        "its interface has for all of them",
        "objective": "what to tune for: latency, traffic or scratch",
        "specs": "numbers of the kernels to tune, hottest first",
        "shares": "share of the time of each, rounded to 1, 1/4, 1/16, ... 1/1024",
        "tried": "by kernel, the candidates that this visit has tried: empty until a connection is "
        "lost",
        "skip": "how many candidates earlier visits tried, rounded down to a power of two: the "
        "server sends that many of the first ones last",
        "check": "whether the page only checks the kernels of a relinked bundle",
    },
    "want": {"count": "how many more candidates the server may send"},
    "result": {
        "spec": "number of the kernel",
        "candidate": "number of the candidate",
        "verdict": "faster, same, slower, wrong, trapped, hung or refused; candidates that an "
        "earlier visit tried get none",
    },
    "report": {
        "nonce": "128 random bits, new for each report: so that none is counted twice",
        "spec": "number of the kernel",
        "checksum": "identifies the space that the numbers of candidates belong to",
        "top": "the fastest candidates, at most 5, the winner of an earlier visit among them: "
        "number, and time of the default over its time, three digits",
        "gold": "answer to a question, if one was asked: two candidates and the ratio of their "
        "times; the order of the two is known, or one is a candidate of the crowd",
    },
    "bye": {},
}

#: The store's columns of a report, and their meaning.
KEPT: Mapping[str, str] = {
    "nonce": "that of the report",
    "kernel": "digest of the kernel's specification",
    "kind": "kind of the kernel, for people",
    "shape": "its shape, for people",
    "device": "id of the class of devices",
    "space": "checksum of the space of candidates",
    "compiler": "name and version of the compiler, and a digest of its source",
    "browser": "family of the browser",
    "day": "date (UTC)",
    "source": "for two days: keyed hash of the network (/24 or /48), and of the site if the server "
    "lists it, with a key that changes daily",
    "counts": "whether the votes count: not after a wrong answer to a gold question",
    "proven": "whether the source answered a gold question right that day",
    "top": "the votes: number of a candidate, and time of candidate 0 over its time",
    "answers": "the same of candidates of the crowd that the server asked for",
}

NEVER = (
    "inputs, outputs or weights of the model",
    "the address of the visitor, a cookie, or an id that lasts longer than one report",
    "the user agent, the name of the processor or of the graphics card",
    "times: only ratios of times",
    "code",
)
