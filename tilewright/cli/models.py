"""The commands around a model: `build`, `check`, `run`, `show`, and `relink`.

Input: an ONNX file or a bundle, for `relink` a file of winners.  Output: a bundle, a coverage
report, arrays, or readable text of a compiler stage.  The work is done in compiler.py, the hosts
and tuning/relink.py; nothing is measured here.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Group
from rich.text import Text

from tilewright.api.host_registry import (
    HOSTS,
    Arrays,
    check_host,
    open_runner,
    targets_of,
    variants_of,
)
from tilewright.base.errors import InputError, UnsupportedOp, UsageError, required, unknown_name
from tilewright.bundle import POINTER, Bundle, is_bundle, open_bundle, write
from tilewright.bundle.format import MALFORMED
from tilewright.bundle.linear_memory import memory_at_start, memory_parts
from tilewright.bundle.owned_files import check as check_free
from tilewright.cli.options import (
    OBJECTIVES_HELP,
    Bank,
    Buckets,
    Bytes,
    Client,
    Extents,
    Force,
    Halves,
    Json,
    ModelFile,
    ModelOrBundle,
    Pyodide,
    Shapes,
    SignWith,
    States,
    Targets,
    Tf32,
    Variants,
    WeightBits,
    check_targets,
    check_variants,
    settings_of,
    signer_of,
    state_pairs,
)
from tilewright.cli.output import Answer, pairs, progress, size, table
from tilewright.cli.output_files import Output
from tilewright.cli.publish import publication
from tilewright.kernel.spec import Kernel
from tilewright.targets import TARGETS, target
from tilewright.targets.device_class import DeviceClass
from tilewright.targets.device_classes import find
from tilewright.targets.schedule import Schedule
from tilewright.tuning.candidates import space_of
from tilewright.tuning.catalogue import kernels_of

if TYPE_CHECKING:
    from tilewright.compiler import Compiled
    from tilewright.frontend import Model, NodeRow

STAGES = ("graph", "kernels", "loops", *(s for t in TARGETS.values() for s in t.stages))


def build(
    model: ModelFile,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Write the bundle to this folder.")
    ],
    target: Targets = None,
    variant: Variants = None,
    shape: Shapes = None,
    bucket: Buckets = None,
    extent: Extents = None,
    state: States = None,
    halves: Halves = False,
    as_bytes: Bytes = False,
    tf32: Tf32 = False,
    bank: Bank = None,
    context: Annotated[
        int | None,
        typer.Option(min=1, help="Let a language model's caches hold this number of tokens."),
    ] = None,
    weights: WeightBits = None,
    caches: Annotated[
        int | None,
        typer.Option(
            help="Store the numbers in a language model's caches with 16 or 32 bits on "
            "WebAssembly, and on CUDA with --halves. By default 16."
        ),
    ] = None,
    lookup: Annotated[
        bool,
        typer.Option(
            "--lookup",
            help="Let a language model check proposed tokens, for --lookup of `generate` and "
            "`chat`.",
        ),
    ] = False,
    asset: Annotated[
        list[Path] | None,
        typer.Option(
            help="Add this file, such as a tokenizer, for the page. You can repeat this option."
        ),
    ] = None,
    static: Annotated[
        bool,
        typer.Option(
            "--static", help="Add all candidates, so that pages can tune without a tuning server."
        ),
    ] = False,
    classes: Annotated[
        list[str] | None,
        typer.Option(
            help="With --static: add candidates for this class of devices. By default for all "
            "classes. You can repeat this option."
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help="With --static: add only candidates that can reduce one of: "
            f"{OBJECTIVES_HELP}. By default latency."
        ),
    ] = None,
    client: Client = False,
    pyodide: Pyodide = None,
    sign_with: SignWith = None,
    as_json: Json = False,
) -> Answer:
    """Compile a model into a bundle."""
    targets, states = check_targets(target), state_pairs(state)
    signer = signer_of(sign_with)
    beside = publication(static, client, classes, objective, pyodide, signer)
    check_free(output, (POINTER, *beside.names))
    start = time.perf_counter()
    compiled = _compile(
        model, shape, bucket, extent, as_json, context=context, weights=weights,
        caches=caches, lookup=lookup, assets=_assets(asset or ()), targets=targets,
        variants=check_variants(variant, targets), states=states, halves=halves, bytes=as_bytes,
        tf32=tf32, settings=settings_of(bank, targets),
    )  # fmt: skip
    write(compiled.contents, output, signer)
    bundle = open_bundle(output)
    with progress(as_json) as report:
        more = beside.write(bundle, report)
    more = {**_rounding(bundle, weights), **more, "seconds": time.perf_counter() - start}
    data = _about(bundle) | more
    return Answer(data, pairs(_readable(data)))


def _rounding(bundle: Bundle, weights: int | None) -> dict[str, object]:
    """How exact the weights are that were rounded to this number of bits."""
    if weights is None:
        return {}
    from tilewright.language import text_assets

    rounded = required(text_assets(bundle).facts.weights, "rounded weights")
    return {"weight_bits": rounded.bits, "weight_error": rounded.error}


def check(
    model: ModelFile,
    shape: Shapes = None,
    bucket: Buckets = None,
    extent: Extents = None,
    as_json: Json = False,
) -> Answer:
    """List every node, supported or not, and the memory that the model needs."""
    del as_json  # the entry point acts on it
    from tilewright.frontend import check as check_model
    from tilewright.frontend import combinations, parse_buckets, parse_extents, parse_shapes

    largest = combinations(parse_buckets(bucket or ()))[-1] | parse_extents(extent or ())
    report = check_model(model, largest, parse_shapes(shape or ()))
    memory = report.weight_bytes + report.activation_bytes
    rows = ((r.name, r.op, r.status, _why(r)) for r in report.rows)
    words = (
        f"{report.counts.get('supported', 0)} of {len(report.rows)} nodes are supported; memory at "
        f"most {size(memory)}, of which {size(report.weight_bytes)} are weights"
    )
    view = Group(table(("node", "op", "status", "why"), rows), words, *report.notes)
    code = 0 if report.ok else UnsupportedOp.exit_code
    return Answer(report.to_json() | {"memory_bytes": memory}, view, code)


def run(
    model: ModelOrBundle,
    inputs: Annotated[
        Path, typer.Option(help="Read one array per input from this .npz file (numpy.savez).")
    ],
    outputs: Annotated[
        Path | None, typer.Option(help="Write the outputs to this .npz file.")
    ] = None,
    host: Annotated[str, typer.Option(help=f"Run on this host: {', '.join(HOSTS)}.")] = "wasmtime",
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Use this number of threads. By default the host chooses."),
    ] = None,
    shape: Shapes = None,
    bucket: Buckets = None,
    extent: Extents = None,
    force: Force = False,
    as_json: Json = False,
) -> Answer:
    """Run a model or a bundle once."""
    from tilewright.cli.npz import are_ours, read_arrays, write_arrays

    check_host(host)
    output = None if outputs is None else Output(outputs, are_ours, force)
    if output is not None:
        output.check()
    given = read_arrays(inputs)
    with (
        _bundle_of(model, shape, bucket, extent, given, as_json, host) as folder,
        open_runner(host, folder, threads) as run_once,
    ):
        ran = run_once(given)
    if output is not None:
        with output.open() as file:
            write_arrays(file, ran.outputs)
    described = [
        {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
        for name, array in ran.outputs.items()
    ]
    data = {
        "host": host,
        "bucket": dict(ran.bucket),
        "milliseconds": ran.milliseconds,
        "adapter": ran.adapter,
        "lost": list(ran.lost),
        "outputs": described,
        "file": None if outputs is None else str(outputs),
    }
    rows = ((d["name"], d["dtype"], "x".join(map(str, d["shape"]))) for d in described)
    place = f", written to {outputs}" if outputs else ""
    words = f"{ran.milliseconds:.2f} ms on {host}{_on(ran.adapter)}{place}"
    said = (*_features(ran.adapter), *ran.lost)
    return Answer(data, Group(table(("output", "type", "shape"), rows), words, *said))


def _on(adapter: Mapping[str, Any] | None) -> str:
    """The adapter in brackets, such as ` (NVIDIA H200)`, and whether it is software; "" if None."""
    if adapter is None:
        return ""
    return f" ({adapter['description'] or adapter['name']}{', software' * adapter['software']})"


def _features(adapter: Mapping[str, Any] | None) -> tuple[str, ...]:
    """A line with the adapter's features that kernels may use; () if the host does not tell
    them."""
    if adapter is None or "features" not in adapter:
        return ()
    return (f"Features of the adapter: {', '.join(adapter['features']) or 'none'}",)


def show(
    model: ModelFile,
    stage: Annotated[str, typer.Option(help=f"Print this stage: {', '.join(STAGES)}.")] = "graph",
    shape: Shapes = None,
    bucket: Buckets = None,
    extent: Extents = None,
    as_json: Json = False,
) -> Answer:
    """Print what a stage of the compiler made of a model."""
    if stage not in STAGES:
        raise unknown_name("stage", stage, STAGES)
    from tilewright.cli.show_stages import text_of

    text = text_of(_compile(model, shape, bucket, extent, as_json), stage)
    return Answer({"stage": stage, "text": text}, Text(text))


def _compile(
    source: Path | Model,
    shape: Sequence[str] | None,
    bucket: Sequence[str] | None,
    extent: Sequence[str] | None,
    as_json: bool,
    known: Mapping[str, Sequence[int]] | None = None,
    context: int | None = None,
    weights: int | None = None,
    caches: int | None = None,
    lookup: bool = False,
    **more: Any,
) -> Compiled:
    """Compiles with the options given.

    known: shapes for a model that was given none
    context, weights, caches, lookup: of a language model, as of `build`
    """
    from tilewright.api.language_bundles import (
        CACHES,
        compile_language,
        is_language_source,
        open_export,
        open_source,
    )
    from tilewright.compiler import Options, compile_model
    from tilewright.frontend import load, parse_buckets, parse_extents, parse_shapes
    from tilewright.frontend.exports import ENDING, encoder_decoder_files, is_export
    from tilewright.frontend.language import ROWS

    options = Options(
        shapes=parse_shapes(shape or ()) or known or {},
        buckets=parse_buckets(bucket or ()),
        extents=parse_extents(extent or ()),
        **more,
    )
    with progress(as_json) as report:
        own = options.shapes or options.extents or options.states or options.buckets.keys() - {ROWS}
        if (
            isinstance(source, Path)
            and is_language_source(source)
            and (source.suffix != ENDING or (encoder_decoder_files(source) and not own))
        ):
            loose = "i8" if options.bytes else "f16" if options.halves else ""
            opened = open_source(source, context, loose, weights, report)
            return compile_language(opened, options, report, caches or CACHES[0], lookup)
        model = load(source)
        if isinstance(source, Path) and is_export(model) and not own:
            opened = open_export(model, source, context, weights)
            return compile_language(opened, options, report, caches or CACHES[0], lookup)
        given = (
            ("--context", context), ("--weights", weights), ("--caches", caches),
            ("--lookup", lookup or None),
        )  # fmt: skip
        for option, value in given:
            if value is not None:
                raise UsageError(
                    f"{option} is for language models", hint="Leave it out", model=source
                )
        return compile_model(model, options, report)


@contextmanager
def _bundle_of(
    path: Path,
    shape: Sequence[str] | None,
    bucket: Sequence[str] | None,
    extent: Sequence[str] | None,
    given: Arrays,
    as_json: bool,
    host: str,
) -> Generator[Path]:
    """The folder of a bundle; a model is built for that host into a temporary folder.

    Without --shape, --buckets and --extent, dynamic dimensions have the sizes of the given inputs.
    """
    if is_bundle(path) or path.is_dir():
        if shape or bucket or extent:
            raise UsageError(
                "The shapes of a bundle are fixed",
                hint="Leave out --shape, --buckets and --extent, or run the model file instead",
                bundle=path,
            )
        yield path
        return
    from tilewright.frontend import load

    model = load(path)
    dynamic = [i.name for i in model.inputs if _is_open(i.dims) and i.name in given]
    known = {} if shape or bucket or extent else {name: given[name].shape for name in dynamic}
    compiled = _compile(
        model, shape, bucket, extent, as_json,
        known=known, targets=targets_of(host), variants=variants_of(host),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="tilewright-run-") as folder:
        write(compiled.contents, Path(folder))
        yield Path(folder)


def _why(row: NodeRow) -> str:
    return ". ".join(filter(None, (row.message, row.hint)))


def _is_open(dims: Sequence[int | str | None] | None) -> bool:
    return dims is None or not all(isinstance(d, int) for d in dims)


def _assets(paths: Sequence[Path]) -> dict[str, bytes]:
    """Read before the model is compiled, not after."""
    found: dict[str, bytes] = {}
    for path in paths:
        if not path.is_file():
            raise InputError(f"There is no file {path}", hint="Correct --asset")
        if path.name in found:
            raise UsageError(f"Two assets are called {path.name}", hint="Rename one", path=path)
        found[path.name] = path.read_bytes()
    return found


def _about(bundle: Bundle) -> dict[str, object]:
    manifest = bundle.manifest
    return {
        "bundle": str(bundle.folder),
        "name": manifest.name,
        "bytes": bundle.bytes,
        "weights_bytes": manifest.weights.bytes,
        "code_bytes": {
            b.variant: b.code.bytes for s in manifest.targets.values() for b in s.builds
        },
        "memory_bytes": max((s.memory for s in manifest.targets.values()), default=0),
        "memory_start_bytes": max(
            (memory_at_start(manifest, s) for s in manifest.targets.values()), default=0
        ),
        "memory_parts": memory_parts(manifest),
        "kernels": max((s.slots for s in manifest.targets.values()), default=0),
        "plans": [
            {"dims": p.dims, "steps": len(p.steps), "flops": sum(s.flops for s in p.steps)}
            for p in manifest.plans
        ],
    }


def _readable(data: dict[str, object]) -> dict[str, object]:
    """The data for people: sizes with units, one line for plans and one for code."""
    shown: dict[str, object] = {}
    for name, value in data.items():
        match name, value:
            case "seconds", float(seconds):
                shown[name] = f"{seconds:.2f}"
            case "code_bytes", dict(codes):
                shown["code"] = ", ".join(f"{k} {size(v)}" for k, v in codes.items())
            case "memory_parts", dict(parts):
                shown["of it"] = ", ".join(f"{k} {size(v)}" for k, v in parts.items()) or "-"
            case "classes", list(ids):
                shown[name] = ", ".join(ids)
            case "plans", list(plans):
                shown[name] = ", ".join(_plan_words(p) for p in plans)
            case "left_out", list(lost):
                shown |= {f"left out {n}": _lost_words(one) for n, one in enumerate(lost, 1)}
            case _, int(count) if name.endswith("bytes"):
                shown[name.removesuffix("_bytes")] = size(count)
            case _:
                shown[name] = value
    return shown


def _lost_words(lost: dict[str, object]) -> str:
    return (
        f"kernel {lost['spec']} ({lost['kernel']}) under {lost['schedule']} for {lost['variant']}: "
        f"{lost['why']}"
    )


def _plan_words(plan: dict[str, object]) -> str:
    dims = plan["dims"]
    named = " ".join(f"{k}={v}" for k, v in dims.items()) if isinstance(dims, dict) else ""
    return f"{named or 'one'} ({plan['steps']} steps)"


def relink(
    bundle: Annotated[
        Path, typer.Argument(metavar="BUNDLE", help="Read the bundle in this folder.")
    ],
    winners: Annotated[
        Path,
        typer.Option(
            help="Take the winners from this JSON file. It comes from `tune --save`, or has the "
            'form {"kernel number": schedule or candidate, …}.'
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Write the new bundle to this folder.")
    ],
    device: Annotated[
        str | None,
        typer.Option(metavar="CLASS", help="Use this class of devices if the file names none."),
    ] = None,
    sign_with: SignWith = None,
    as_json: Json = False,
) -> Answer:
    """Write the bundle again, with the schedules that won on a class of devices."""
    del as_json
    from tilewright.tuning.relink import relink as relinked

    opened = open_bundle(bundle)
    chosen, schedules = _winners(winners, kernels_of(opened), device)
    contents = relinked(opened, chosen, schedules)
    manifest = write(contents, output, signer_of(sign_with))
    section = manifest.section(chosen.target)
    build = required(section.build(chosen.variant), "it was not written", variant=chosen.variant)
    data = {
        "bundle": str(output),
        "device": chosen.id,
        "variant": build.variant,
        "code_bytes": build.code.bytes,
        "kernels": section.slots,
    }
    return Answer(data, pairs(data | {"code_bytes": size(build.code.bytes)}))


class SavedWinners(msgspec.Struct):
    """The file that `tune --save` writes: the device class, and the winning schedules by spec
    number."""

    device: str = msgspec.field(name="class")
    schedules: dict[int, dict[str, object]]


def _winners(
    path: Path, kernels: tuple[Kernel, ...], device: str | None
) -> tuple[DeviceClass, Mapping[int, Schedule]]:
    """The device class of a file of winners, and its schedules by spec number.  Raises UsageError
    if `device` names another class."""
    try:
        data = path.read_bytes()
        if "class" in msgspec.json.decode(data, type=dict[str, msgspec.Raw]):
            saved = msgspec.json.decode(data, type=SavedWinners)
            chosen = find(device or saved.device)
            if chosen.id != saved.device:
                raise UsageError(
                    f"{path} has the winners of class {saved.device}, not of {chosen.id}",
                    hint="Leave --device out, or tune on a device of that class",
                )
            schedule = target(chosen.target).schedule
            return chosen, {n: schedule(s) for n, s in saved.schedules.items()}
        given = msgspec.json.decode(data, type=dict[int, int | dict[str, object]])
        if device is None:
            raise UsageError(f"{path} does not name a device class", hint="Give --device CLASS")
        chosen = find(device)
        return chosen, {n: _schedule(s, kernels, n, chosen) for n, s in given.items()}
    except MALFORMED as error:
        raise InputError(
            f"{path} is not a list of winners: {error}",
            hint='Write {"3": 17} or {"3": {"form": "contraction", …}}: schedules by spec number',
        ) from error


def _schedule(
    given: int | dict[str, object], kernels: tuple[Kernel, ...], spec: int, device: DeviceClass
) -> Schedule:
    if isinstance(given, dict):
        found: Schedule = target(device.target).schedule(given)
        return found
    schedules = space_of(kernels[spec], device).schedules
    if not 0 <= given < len(schedules):
        raise IndexError(f"kernel {spec} has no candidate {given}")
    return schedules[given]
