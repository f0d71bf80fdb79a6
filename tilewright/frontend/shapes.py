"""Values for dynamic dimensions: overrides of shapes, named dimensions, and their buckets.

Input: a model's declared inputs and the user's options.  Output: a concrete shape per input, or
ShapeError with the input, the dimension and a hint.  It reads no nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from tilewright.base.errors import ShapeError, UsageError
from tilewright.frontend.read import Dim, Model, TensorDecl
from tilewright.graph.ops import Shape

Shapes = Mapping[str, Sequence[int | str]]
Buckets = Mapping[str, Sequence[int]]


def resolve(
    model: Model, dims: Mapping[str, int] | None = None, shapes: Shapes | None = None
) -> dict[str, Shape]:
    """The shape of every input.

    dims:   value by name of the dimension
    shapes: by input, instead of the declared shape; entries are numbers or names.  A number also
            sets the declared name at that place for the other inputs

    Raises ShapeError, UsageError.
    """
    wanted = shapes or {}
    _check_names(model, dims or {}, wanted)
    declared = {i.name: _declared(i, wanted.get(i.name)) for i in model.inputs}
    values = _bound(model, dims or {}, wanted)
    return {
        i.name: tuple(_value(i, at, d, values) for at, d in enumerate(declared[i.name]))
        for i in model.inputs
    }


def combinations(buckets: Buckets | None) -> list[dict[str, int]]:
    """Every choice of one size per named dimension, smallest first."""
    names = list(buckets or {})
    sizes = [sorted(set((buckets or {})[name])) for name in names]
    return [dict(zip(names, choice, strict=True)) for choice in product(*sizes)]


def parse_shapes(texts: Iterable[str]) -> dict[str, tuple[int | str, ...]]:
    """`input=1x128` or `input=1xn`, as the command line gives them."""
    made: dict[str, tuple[int | str, ...]] = {}
    for text in texts:
        name, equals, shape = text.rpartition("=")
        parts = [p for p in shape.split("x") if p] if shape else []
        if not equals or not name or (shape and len(parts) != len(shape.split("x"))):
            raise UsageError(
                f"cannot read the shape {text!r}", hint="Write --shape NAME=1x128 or NAME=1xn"
            )
        _check_fresh(name, made, "--shape")
        made[name] = tuple(int(p) if _is_number(p) else p for p in parts)
    return made


def parse_buckets(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """`n=16,32,64`, as the command line gives them."""
    made: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, _, sizes = text.partition("=")
        parts = sizes.split(",")
        if not name or not all(_is_number(p.strip()) and int(p) > 0 for p in parts):
            raise UsageError(
                f"cannot read the buckets {text!r}", hint="Write --buckets NAME=16,32,64"
            )
        _check_fresh(name, made, "--buckets")
        made[name] = tuple(sorted({int(p) for p in parts}))
    return made


def parse_extents(texts: Iterable[str]) -> dict[str, int]:
    """`n=512`, as the command line gives them."""
    made: dict[str, int] = {}
    for text in texts:
        name, _, bound = text.partition("=")
        if not name or not _is_number(bound):
            raise UsageError(f"cannot read the extent {text!r}", hint="Write --extent NAME=512")
        _check_fresh(name, made, "--extent")
        made[name] = int(bound)
    return made


def _is_number(text: str) -> bool:
    """True for plain ASCII digits.  `isdigit` alone accepts texts that `int` refuses, such as
    "²"."""
    return text.isascii() and text.isdigit()


def _check_fresh(name: str, made: Mapping[str, object], option: str) -> None:
    if name in made:
        raise UsageError(f"{option} names {name!r} twice", hint="Write all of its sizes at once")


def _check_names(model: Model, dims: Mapping[str, int], shapes: Shapes) -> None:
    inputs = [i.name for i in model.inputs]
    for name in shapes:
        if name in model.weights:
            raise ShapeError(
                f"{name!r} is a weight: the file has its value, and runs cannot give another",
                hint="Remove its initializer from the file to make it an input",
                input=name,
            )
        if name not in inputs:
            raise ShapeError(
                f"the model has no input {name!r}", hint=f"Its inputs are {', '.join(inputs)}"
            )
    named = {*model.dim_names, *(d for s in shapes.values() for d in s if isinstance(d, str))}
    for name, size in dims.items():
        if name not in named:
            known = ", ".join(sorted(named)) or "none"
            raise ShapeError(
                f"the model has no dynamic dimension {name!r}",
                hint=f"Its named dynamic dimensions are: {known}",
            )
        if size < 1:
            raise ShapeError(f"dimension {name!r} must be at least 1", dim=name, value=size)


def _declared(decl: TensorDecl, override: Sequence[int | str] | None) -> tuple[Dim, ...]:
    """The dimensions of an input: overridden or as declared.  Raises ShapeError."""
    if override is None:
        if decl.dims is None:
            raise ShapeError(
                f"input {decl.name!r} has no shape in the file",
                hint=f"Give one with --shape {decl.name}=1x128",
                input=decl.name,
            )
        return decl.dims
    if decl.dims is None:
        return tuple(override)
    fits = len(override) == len(decl.dims) and all(
        not isinstance(d, int) or d == o for d, o in zip(decl.dims, override, strict=True)
    )
    if not fits:
        raise ShapeError(
            f"the shape given for input {decl.name!r} does not fit the model",
            hint="Dimensions that the file fixes cannot change",
            input=decl.name,
            shape=[d if d is not None else "?" for d in decl.dims],
            given=list(override),
        )
    return tuple(override)


def _bound(model: Model, dims: Mapping[str, int], shapes: Shapes) -> dict[str, int]:
    """Values of names: as given, or as implied by overridden shapes.  Raises ShapeError."""
    values = dict(dims)
    for decl in model.inputs:
        for name, given in zip(decl.dims or (), shapes.get(decl.name, ()), strict=False):
            if not isinstance(name, str) or not isinstance(given, int):
                continue
            if values.setdefault(name, given) != given:
                raise ShapeError(
                    f"dimension {name!r} would be {values[name]} and {given} at once",
                    hint="Inputs that share a named dimension need the same size",
                    input=decl.name,
                    dim=name,
                )
    return values


def _value(decl: TensorDecl, at: int, dim: Dim, values: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    if dim is not None and dim in values:
        return values[dim]
    full = "x".join(
        "N" if i == at else str(values.get(d, d) if isinstance(d, str) else d or "?")
        for i, d in enumerate(decl.dims or ())
    )
    way = f"--shape {decl.name}={full or 'N'}"
    if isinstance(dim, str):
        way += f" or --buckets {dim}=16,32,64"
    named = f"{dim!r} " if dim else ""
    raise ShapeError(
        f"dimension {at} {named}of input {decl.name!r} is dynamic and has no value",
        hint=f"Give it one with {way}",
        input=decl.name,
        dim=dim if dim else at,
    )
