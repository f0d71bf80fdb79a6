"""The options that several commands share, and how their values are read.

Input: strings such as "384x768x768".  Output: values, or a `UsageError` that shows the right form.
Shapes and buckets are read by the frontend, which knows what they mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from tilewright.base.abi import WORD_BYTES
from tilewright.base.errors import MemoryLimit, UsageError, unknown_name
from tilewright.bundle import POINTER
from tilewright.targets import DEFAULT, TARGETS, target
from tilewright.targets.lite_space import Objective

if TYPE_CHECKING:
    from tilewright.bundle.signing import Signer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout.")]
ModelFile = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="Read the model from an ONNX file, a GGUF file, or a folder with a language model: "
        "safetensors files or an exported .onnx file, with their settings and tokenizer.",
    ),
]
Lookup = Annotated[
    bool,
    typer.Option(
        "--lookup",
        help="Write repetitive texts faster: when the last tokens came before, compute the token "
        "that followed them in the same run. The text stays the same.",
    ),
]
WeightBits = Annotated[
    int | None,
    typer.Option(
        "--weights",
        metavar="BITS",
        help="Store the weights of a model folder with 4, 8, 16 or 32 bits. By default they stay "
        "as they are.",
    ),
]
ModelOrBundle = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL|BUNDLE", help="Run this ONNX file, or the bundle in this folder."
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=1x128",
        help="Give an input this shape. A dimension can be a name, as in 1xn. "
        "You can repeat this option.",
    ),
]
Buckets = Annotated[
    list[str] | None,
    typer.Option(
        "--buckets",
        metavar="DIM=16,32",
        help="Make one plan for each of these sizes of a named dimension. "
        "You can repeat this option.",
    ),
]
Extents = Annotated[
    list[str] | None,
    typer.Option(
        "--extent",
        metavar="DIM=512",
        help="Make one plan for all sizes of a named dimension up to this one; each run has its "
        "own size. You can repeat this option.",
    ),
]
Client = Annotated[
    bool,
    typer.Option(
        "--client",
        help="Give pages the compiler itself (Pyodide), so that they make candidates themselves.",
    ),
]
Pyodide = Annotated[
    Path | None,
    typer.Option(help="With --client: take Pyodide from this folder of the npm package pyodide."),
]
SignWith = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Sign with the site's private key (`keygen`), so that pages can verify signatures.",
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        help=f"Compile for this target: {', '.join(TARGETS)}. By default {', '.join(DEFAULT)}. "
        "You can repeat this option.",
    ),
]
Variants = Annotated[
    list[str] | None,
    typer.Option(
        "--variant",
        help="Build this code variant. By default all are built, except those that are made for "
        "one engine. You can repeat this option.",
    ),
]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="INPUT=OUTPUT",
        help="Let this input take this output of the previous run. A * on both sides stands "
        "for the same text. You can repeat this option.",
    ),
]
Halves = Annotated[
    bool,
    typer.Option(
        "--halves",
        help="Store f32 weights as 16-bit floats. The download is half as large, and GPUs read "
        "half as much. Activations may also be rounded to 16 bits where such a weight multiplies "
        "them, and in attention.",
    ),
]
Bytes = Annotated[
    bool,
    typer.Option(
        "--bytes",
        help="Let products of 4-bit weights round the activations to 8 bits. Language models then "
        "give tokens faster on GPUs; results of these products differ by about 0.4 %.",
    ),
]
Tf32 = Annotated[
    bool,
    typer.Option(
        "--tf32",
        help="Let products with f32 weights round both operands to 10 bits of fraction "
        "(TF32), for the tensor cores of NVIDIA GPUs (CUDA).",
    ),
]
Bank = Annotated[
    int | None,
    typer.Option(
        "--bank",
        metavar="BYTES",
        min=2**20,
        help="Split a model on WebGPU into several buffers of at most this size: large weights "
        "first, then states and intermediate results if necessary. By default a buffer has up to "
        "1073741824 bytes (1 GiB). Every device allows 134217728 (128 MiB).",
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Overwrite a file that Tilewright did not write.")
]
#: What a tuner reduces, by the name of the objective.
OBJECTIVES: Mapping[Objective, str] = {
    "latency": "time",
    "traffic": "words moved beyond the L1 cache, at equal speed",
    "scratch": "temporary memory, at equal speed",
}
#: The same as text for `--help`.
OBJECTIVES_HELP = "; ".join(f"{name} ({what})" for name, what in OBJECTIVES.items())
#: The longest dimension: the number of f32 numbers that the memory of the default target can hold.
LONGEST = (1 << target(DEFAULT[0]).facts.address_bits) // WORD_BYTES


def database_url(text: str) -> str:
    """`"a/store.db"` → `"sqlite:///a/store.db"`; URLs are not changed."""
    return text if "://" in text or not text else f"sqlite:///{text}"


def check_targets(named: Sequence[str] | None) -> tuple[str, ...]:
    """Names of known targets, each once; without any, the default ones."""
    return tuple(target(name).name for name in dict.fromkeys(named or DEFAULT))


def check_variants(named: Sequence[str] | None, targets: Sequence[str]) -> tuple[str, ...]:
    """Names of variants of these targets, each once."""
    known = [variant for name in targets for variant in target(name).variants]
    for name in named or ():
        if name not in known:
            raise unknown_name("variant", name, known)
    return tuple(dict.fromkeys(named or ()))


def settings_of(bank: int | None, targets: Sequence[str]) -> dict[str, int]:
    """The settings of targets, from options of the command line."""
    if bank is None:
        return {}
    if not any(target(name).facts.banks for name in targets):
        able = " or ".join(name for name, known in TARGETS.items() if known.facts.banks)
        raise UsageError(
            f"--bank has no effect on the targets {', '.join(targets)}",
            hint=f"Add --target {able}, or leave out --bank",
        )
    return {"bank": bank}


def state_pairs(given: Sequence[str] | None) -> dict[str, str]:
    """States by the name of their input: `["h=hn"]` → `{"h": "hn"}`."""
    pairs = [text.partition("=") for text in given or ()]
    for name, sign, result in pairs:
        if not (name and sign and result):
            raise UsageError(
                f"--state {name}{sign}{result} does not name an input and an output",
                hint="Write --state INPUT=OUTPUT",
            )
    return {name: result for name, _, result in pairs}


def check_objective(objective: str) -> Objective:
    if objective not in OBJECTIVES:
        raise unknown_name("objective", objective, OBJECTIVES)
    return cast("Objective", objective)


def signer_of(path: Path | None) -> Signer | None:
    """The key in the file; None without one."""
    if path is None:
        return None
    from tilewright.bundle.signing import read_signer

    return read_signer(path)


def sizes(text: str, separator: str, hint: str) -> tuple[int, ...]:
    """`"384x768x768"` → `(384, 768, 768)`; nothing → `()`."""
    parts = text.split(separator) if text else []
    if not all(p.isascii() and p.isdigit() and p.strip("0") for p in parts):
        raise UsageError(f"Not a list of positive numbers: {text}", hint=f"Write it as {hint}")
    # Python refuses to read numbers of thousands of digits.
    if any(len(p.lstrip("0")) > len(str(LONGEST)) or int(p) > LONGEST for p in parts):
        raise MemoryLimit(
            "This size does not fit into any memory", hint="Use smaller sizes", longest=LONGEST
        )
    return tuple(map(int, parts))


def bundle_names(given: Iterable[str]) -> dict[str, Path]:
    """`["dir/minilm", "other=dir/b"]` → `{"minilm": …, "other": …}`; of files also the stem."""
    found: dict[str, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        named = equals and not Path(text).exists()
        folder = Path(path if named else text)
        folder = folder.parent if folder.name == POINTER else folder
        if not named:
            name = folder.stem if folder.is_file() else folder.resolve().name
        if not name or "/" in name or name in found:
            raise UsageError(
                f"Two of these are called {name}" if name in found else f"No name in: {text}",
                hint="Name them: tilewright serve first=path/one second=path/two",
            )
        found[name] = folder
    return found
