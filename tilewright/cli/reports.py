"""`reports preview`: shows what visitors' pages will send to a site that asks for reports.

Input: a bundle (or none: then a small one of our own), a browser, a number of seconds.  Output:
every message that the page's own tuner sent in a short session, what each field of it is, and what
a store kept.  The server is a local one, and its store is deleted at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from tilewright.api.host_registry import targets_of
from tilewright.base.errors import NotMeasured
from tilewright.bundle import open_bundle, write
from tilewright.cli.options import Json, database_url
from tilewright.cli.output import Answer, pairs, progress, table
from tilewright.cli.tune import CANCELLED, PAGES, TuningLog, check_tuner
from tilewright.tuning.messages import FIELDS, KEPT, NEVER, SHARED

app = typer.Typer(name="reports", help="Show what devices report to a site's kernel database.")
Plain = dict[str, object]


@app.command("preview")
def preview(
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Tune the bundle in this folder. By default a small example."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help=f"Tune on this host: {', '.join(PAGES)}.")] = "chromium",
    budget: Annotated[float, typer.Option(min=0.1, help="Tune for this number of seconds.")] = 5,
    as_json: Json = False,
) -> Answer:
    """Tune for a few seconds, and show what the page sent and what a store kept.

    Server and store are on this machine, and nothing leaves it.
    """
    check_tuner(host, PAGES)
    if bundle is not None:
        open_bundle(bundle)
    from tilewright.cli.compile_workers import makers
    from tilewright.hosts.browser import BrowserHost
    from tilewright.server import Tuning
    from tilewright.store import KernelStore

    with TemporaryDirectory(prefix="tilewright-") as place:
        opens = partial(KernelStore.open, database_url(str(Path(place, "votes.db"))))
        options: Plain = {"seconds": budget, "budget": 1, "report": True}
        tuning = Tuning(makers(1), opens)
        with progress(as_json) as show, BrowserHost(host, tuning=tuning) as browser:
            session = TuningLog(budget, show)
            model = browser.load(bundle or _example(Path(place, "example"), host))
            summary = model.tune(options, session.take)
        with opens() as store:
            stored = store.rows()
    if not summary["cancelled"] and not _of("report", session.sent):
        raise NotMeasured(
            "No kernel was measured well enough to report on",
            hint="Give it more time with --budget, and end programs that keep the processor busy",
            browser=host, budget_seconds=budget, candidates=summary["rounds"],
        )  # fmt: skip
    data = {
        "host": host,
        "class": summary["class"],
        "rounds": summary["rounds"],
        "seconds": summary["seconds"],
        "cancelled": summary["cancelled"],
        "messages": session.sent,
        "stored": stored,
        "fields": FIELDS,
        "shared": SHARED,
        "kept": KEPT,
        "never": NEVER,
    }
    return Answer(data, _view(session.sent, stored), CANCELLED if summary["cancelled"] else 0)


def _example(folder: Path, host: str) -> Path:
    """A bundle with one product, for this host."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    from tilewright.compiler import Options, compile_model

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [64, 64]) for n in ("x", "y"))
    weight = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([product], "matmul", [x], [y], [numpy_helper.from_array(weight, "w")])
    path = folder.with_suffix(".onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    write(compile_model(path, Options(targets=targets_of(host))).contents, folder)
    return folder


def _of(kind: str, messages: Sequence[Plain]) -> list[Plain]:
    return [message for message in messages if message["type"] == kind]


def _view(messages: Sequence[Plain], stored: Sequence[Mapping[str, object]]) -> Group:
    """For each kind of message, the meaning of its fields and all messages sent; then the same for
    the rows that the store kept."""
    parts: list[RenderableType] = []
    for kind, fields in FIELDS.items():
        when = "only if results are shared" if kind in SHARED else "whenever a page tunes"
        parts += _explained(f"{kind}: {when}", fields, _of(kind, messages))
    parts += _explained("The store keeps of a report", KEPT, stored)
    parts += [Text("\nNever sent", style="bold"), *(Text(f"  {what}") for what in NEVER)]
    return Group(*parts)


def _explained(
    title: str, fields: Mapping[str, str], rows: Sequence[Mapping[str, object]]
) -> list[RenderableType]:
    """Fields with their meaning and the values of all rows, equal rows once."""
    heading = Text(f"\n{title} ({len(rows)} in this session)", style="bold")
    if not fields:
        return [heading]
    if len(rows) == 1:
        lines = [(name, _value(rows[0], name), what) for name, what in fields.items()]
        return [heading, table(["field", "value", "what it is"], lines)]
    alike = Counter(tuple(_value(row, name) for name in fields) for row in rows)
    values = [(*row, f"{times} times" if times > 1 else "") for row, times in alike.items()]
    return [heading, pairs(fields), *([table([*fields, ""], values)] if rows else [])]


def _value(row: Mapping[str, object], name: str) -> str:
    return msgspec.json.encode(row[name]).decode() if name in row else ""
