"""Sources by a grammar: whatever is called elastic gives the bits of the kernel, and compiles.

A source that is refused names a line.  Sources are judged together, as compilers start slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pytest
from elastic_grammar import WAYS, Writer, source
from helpers.looks import growing
from helpers.seeds import seeds
from test_cuda import nvrtc as nvrtc

from tilewright.base.errors import HostError
from tilewright.elastic.transform import Transformed, transform
from tilewright.elastic.transform.cpu_trial import Trial, TrialLaunch, TrialWorkers, bits, copies
from tilewright.hosts.cuda_on_cpu import compiler

#: Sources of one test.
TOGETHER = 50
Nvrtc = Callable[[str, str], bytes]


def accepted(numbers: Sequence[int], write: Callable[[int], str]) -> dict[int, Transformed]:
    """Those of the sources whose kernel is called elastic; of others, whether they say why."""
    found = {}
    for number in numbers:
        text = write(number)
        made = transform(text, "k.cu")
        assert made.kernels, text
        for kernel in made.kernels:
            lines = [reason.place.line for reason in kernel.reasons]
            assert all(1 <= line <= text.count("\n") + 1 for line in lines), text
        if made.kernels[0].elastic:
            found[number] = made
        else:
            assert made.text == text
    return found


def wrong(made: dict[int, Transformed], write: Callable[[int], str]) -> list[str]:
    """Sources whose forms do not compile though they do, or give other bits."""
    try:
        text = "".join(_short(m.text, n) for n, m in made.items())
        trial = Trial(text + _all(made), {"all": "all"})
    except HostError:
        if len(made) > 1:
            numbers = list(made)
            halves = (numbers[: len(made) // 2], numbers[len(made) // 2 :])
            return [w for half in halves for w in wrong({n: made[n] for n in half}, write)]
        ((number, one),) = made.items()
        return [one.text] if _compiles(write(number), number) else []
    return [one.text for number, one in made.items() if not _same(trial, number)]


def _all(numbers: Iterable[int]) -> str:
    """One kernel, and its forms, that are each of these: compilers take long for an entry."""
    ranges = {"": "", "_slice": "tilewright::TileRange s", "_elastic":
              "tilewright::TileRange s, tilewright::Turn t"}  # fmt: skip
    found = ""
    for form, more in ranges.items():
        given = "".join(f", {part.split()[1]}" for part in more.split(", ") if part)
        if form == "_elastic":
            numbers = [n for n in numbers if not _is_slice(n)]
        cases = "".join(f"  case {n}: return k_{n}{form}(x, n{given});\n" for n in numbers)
        head = ", ".join(filter(None, ("int which, int *x, int n", more)))
        found += f"__global__ void all{form}({head}) {{\n  switch (which) {{\n{cases}  }}\n}}\n"
    return found


def _is_slice(number: int) -> bool:
    """Workers are the same text for all, and compilers take long for it: one of five has them."""
    return number % 5 != 0


def _short(text: str, number: int) -> str:
    """Without workers for most: their form is a slice then."""
    if not _is_slice(number):
        return text
    own, found, rest = text.partition(f"__global__ void k_{number}_elastic(")
    _, again, end = rest.partition(f"__global__ void k_{number}_slice(")
    assert found
    assert again
    unused = f"__global__ void k_{number}_elastic(int *, int) {{}}\n"
    return own + unused + again + end


def _compiles(text: str, number: int) -> bool:
    """Whether the source alone does, with forms of another kernel that nobody calls."""
    forms = "".join(f"__global__ void k_{number}_{form}(int *, int) {{}}\n"
                    for form in ("elastic", "slice"))  # fmt: skip
    try:
        Trial(forms + text, {f"k{number}": f"k_{number}"})
    except HostError:
        return False
    return True


def _same(trial: Trial, number: int) -> bool:
    given_x = (np.int32(number), np.zeros(20, np.int32), np.int32(20))
    launch = TrialLaunch((3, 2, 1), (4, 1, 1), given_x)
    plain = copies(launch)
    trial.plain("all", plain)
    runs = []
    for looks in () if _is_slice(number) else (2, 0):
        given = copies(launch)
        trial.elastic("all", given, TrialWorkers(2, looks=growing(looks)))
        runs.append(bits(given))
    given = copies(launch)
    trial.slice("all", given, 0, 1)
    trial.slice("all", given, 1, 6, workers=2)
    return all(found == bits(plain) for found in (*runs, bits(given)))


@pytest.fixture(scope="module")
def cpu() -> None:
    try:
        compiler()
    except HostError as error:
        pytest.skip(str(error))


@pytest.mark.seldom(4)
@pytest.mark.parametrize("part", seeds(2, nightly=98))
def test_whatever_is_called_elastic_gives_the_same_bits(cpu: None, part: int) -> None:
    numbers = range(part * TOGETHER, (part + 1) * TOGETHER)
    made = accepted(numbers, source)
    assert made, "every source is refused"
    assert wrong(made, source) == []


@pytest.mark.parametrize("part", seeds(1, nightly=20))
def test_whatever_is_called_elastic_compiles_with_nvidias_compiler(nvrtc: Nvrtc, part: int) -> None:
    for number, made in accepted(range(part * 20, (part + 1) * 20), source).items():
        try:
            nvrtc(source(number), "compute_75")
        except HostError:
            continue
        assert nvrtc(made.text, "compute_75")


def single(number: int) -> str:
    """Each way alone."""
    w = Writer(number)
    use = list(WAYS.values())[number].write(w, "blockIdx.x")
    body = "\n".join(w.body)
    return "\n".join(w.before) + (
        f"\n__global__ void k_{number}(int *x, int n) {{\n{body}\n"
        f"  int i = threadIdx.x + blockDim.x * ({use});\n  if (i < n) x[i] += i + 1;\n}}\n"
    )


@pytest.mark.seldom(4)
def test_every_way_alone(cpu: None) -> None:
    made = accepted(range(len(WAYS)), single)
    assert wrong(made, single) == []
    names = list(WAYS)
    plain = {"function", "overloads", "declared", "template", "method", "method outside", "macro",
             "macro with a parameter", "macro that calls more", "lambda", "lambda by reference",
             "copy", "given whole", "static method", "nested", "directive"}  # fmt: skip
    assert plain <= {names[number] for number in made}
    refused = {"constructor", "member's value", "default argument", "lambda outside", "pointer",
               "pasted words", "pasted call", "digraph", "split word", "by its number", "using",
               "virtual", "operator", "local class", "line", "declared inside", "literal",
               "literal of a text"}  # fmt: skip
    assert not refused & {names[number] for number in made}
