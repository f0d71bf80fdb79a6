"""Texts of WebGPU kernels are vetted before they run (web/engine/gpu_vet.js): ours pass, others do
not, and none that might not end."""

from __future__ import annotations

import re

import pytest
from helpers.attention import VARIANTS
from helpers.graphs import steps_of
from helpers.integers import quantised_graph
from node import run
from test_attention import attentions, compiled

from lab.subjects import product_kernel
from tilewright.base.dtypes import F32
from tilewright.base.scalars import SCALARS
from tilewright.graph.node import Graph, elementwise, graph_input
from tilewright.graph.passes import optimise
from tilewright.kernel.spec import Kernel
from tilewright.targets import target
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.attention.schedule import AttentionSomeRowsSchedule
from tilewright.targets.gpu.matrix.schedule import MatrixGemmSchedule
from tilewright.targets.gpu.matrix.strategies import MATRIX_GEMM
from tilewright.targets.gpu.product.schedule import RegisterGemmSchedule, SubgroupGemmSchedule
from tilewright.targets.protocol import PACKING
from tilewright.targets.wgsl.prelude import LINES, head
from tilewright.tuning.candidates import build, space_of

SCRIPT = """
const { factsOf, objectionTo } = await import('TUNE/../engine/gpu_vet.js');
const found = <texts>.map(([text, tiles]) => {
  const objection = objectionTo(new TextEncoder().encode(text), tiles);
  return { objection, ...(objection ? {} : factsOf(text)) };
});
console.log(JSON.stringify(found));
"""

Text = tuple[str, int]


def texts(m: int, k: int, n: int, every: int = 1) -> list[Text]:
    kernel = product_kernel("mk,kn->mn", (m, k), (k, n), weight=True)
    found = space_of(kernel, CLASSES["webgpu"]).schedules
    schedules = [s for s in found if not s.features][::every]
    made = (build(kernel, schedule, "wgsl", "core") for schedule in schedules)
    return [(one.module.decode(), one.tiles) for one in made]


@pytest.fixture(scope="module")
def good() -> Text:
    """A kernel of 64 threads, whose loop over blocks is made `FOR`."""
    kernel = product_kernel("mk,kn->mn", (40, 64), (64, 48), weight=True)
    made = build(kernel, RegisterGemmSchedule(4, 4, 4, 32, 32, 16), "wgsl", "core")
    text = made.module.decode()
    ((line, name),) = re.findall(r"(  for \(var (block\d+): i32 = 0;.*\n)", text)
    return text.replace(line, FOR).replace(name, "block5"), made.tiles


@pytest.mark.parametrize("sizes", [(40, 64, 48), (37, 61, 53), (4096, 8192, 4096)])
def test_candidates_pass(sizes: tuple[int, int, int]) -> None:
    given = texts(*sizes, every=4)
    for (text, _), found in zip(given, run(SCRIPT, texts=given), strict=True):
        assert found["objection"] == ""
        assert f"@workgroup_size({found['group']})" in text
        assert found["lanes"] == (4 if "memory: array<vec4<u32>>" in text else 1)


def test_attention_that_ends_at_run_time_passes() -> None:
    """It reads a number that all threads share, by a pointer, and leaves its loop early."""
    (kernel,) = attentions(compiled(VARIANTS["cached"]())[1])
    made = build(kernel, AttentionSomeRowsSchedule(4, 32, 32), "wgsl", "core")
    text = made.module.decode()
    assert "workgroupUniformLoad(&" in text
    assert "break;" in text
    other = text.replace("workgroupUniformLoad(&", "atomicLoad(&")
    passed, refused = run(SCRIPT, texts=[(text, made.tiles), (other, made.tiles)])
    assert passed["objection"] == ""
    assert refused["objection"] == "it has '(&'"


def test_every_scalar_function_passes() -> None:
    """Whatever loops a function of the prelude has."""
    x = graph_input("x", (64,), F32)
    plain = [f for f in SCALARS.values() if f.floats_only]
    nodes = [(f.name, elementwise(f.name, *[x] * f.arity)) for f in plain]
    wgsl = target("wgsl")
    given = []
    for step in steps_of(Graph("g", (("x", x),), tuple(nodes))):
        made = build(step.kernel, wgsl.default(step.kernel, "core"), "wgsl", "core")
        given.append((made.module.decode(), made.tiles))
    assert len(given) == len(plain)
    assert [found["objection"] for found in run(SCRIPT, texts=given)] == [""] * len(given)


FOR = "  for (var block5: i32 = 0; block5 < 64; block5 += 16) {\n"
#: What is replaced, by what, and a word of the objection.
CHANGES = {
    "endless": (FOR, FOR + "    loop { }\n", "'loop'"),
    "while": (FOR, FOR + "    while (true) { }\n", "'while'"),
    "no end": (FOR, "  for (;;) {\n", "constant ends"),
    "no step": (FOR, FOR.replace("+= 16", "+= 0"), "constant ends"),
    "backwards": (FOR, FOR.replace("+= 16", "-= 16"), "constant ends"),
    "an end from memory": (FOR, FOR.replace("< 64", "< i32(word(0u))"), "constant ends"),
    "set back": (FOR, FOR + "    block5 = 0;\n", "assigns block5"),
    "set back in parentheses": (FOR, FOR + "    (block5) = 0;\n", "assigns block5"),
    "moved": (FOR, FOR + "    block5 -= 16;\n", "assigns block5"),
    "decremented": (FOR, FOR + "    block5--;\n", "assigns block5"),
    "by a pointer": (FOR, FOR + "    let p = &block5; *p = 0;\n", "'= &'"),
    "by a function": (FOR, FOR + "    back(&block5);\n", "'(&'"),
    "for long": (FOR, FOR.replace("64", "99999999").replace("+= 16", "+= 1"), "letters"),
    "in a comment": (FOR, "  /* */\n" + FOR, "'/*'"),
    "behind a comment": ("struct Step", "// */\n/* struct Step", "'/*'"),
    "another binding": (
        "struct Step", "@group(0) @binding(2) var<storage> other: array<u32>;\nstruct Step",
        "bindings",
    ),
    "another entry": ("struct Step", "@compute @workgroup_size(1)\nfn other() { }\nstruct Step",
                      "bindings"),
    "a constant of the pipeline": ("struct Step", "override many: u32;\nstruct Step", "'override'"),
    "an extension": ("var<workgroup> b3", "enable f16;\nvar<workgroup> b3", "'enable'"),
    "a large group": ("@workgroup_size(64)", "@workgroup_size(512)", "512 threads"),
    "no group": ("@workgroup_size(64)", "@workgroup_size(0)", "0 threads"),
    "two dimensions": ("@workgroup_size(64)", "@workgroup_size(8, 8)", "bindings"),
    "a size by name": ("@workgroup_size(64)", "@workgroup_size(MANY)", "bindings"),
    "memory that is read alone": ("storage, read_write", "storage, read", "bindings"),
    "another letter": ("struct Step", "// \u2028\nstruct Step", "ASCII"),
    "a block too many": ("struct Step", "}\nstruct Step", "do not close"),
    "length": ("struct Step", " " * (1 << 18) + "struct Step", "bytes"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_others_do_not(good: Text, change: str) -> None:
    old, new, word = CHANGES[change]
    text, tiles = good
    assert text.count(old) == 1, text[-4000:]
    (found,) = run(SCRIPT, texts=[(text.replace(old, new), tiles)])
    assert word in found["objection"]


def test_functions_that_call_each_other_many_times_count(good: Text) -> None:
    """Without any loop: each calls the next one twice."""
    text, tiles = good
    lines = [f"fn call{n}() {{ call{n + 1}(); call{n + 1}(); }}" for n in range(60)]
    many = "\n".join([*lines, "fn call60() { }"])
    changed = text.replace("struct Step", f"{many}\nstruct Step")
    (unused,) = run(SCRIPT, texts=[(changed, tiles)])
    assert unused["objection"] == ""
    (found,) = run(SCRIPT, texts=[(changed.replace(FOR, f"  call0();\n{FOR}"), tiles)])
    assert "letters" in found["objection"]
    itself = text.replace("struct Step", "fn f() { f(); }\nstruct Step")
    (found,) = run(SCRIPT, texts=[(itself.replace(FOR, f"  f();\n{FOR}"), tiles)])
    assert "letters" in found["objection"]


def test_a_text_counts_as_compilers_write_it_out(good: Text) -> None:
    """Few letters are executed, but each of 2^16 calls is a copy of the last function."""
    text, tiles = good
    lines = [f"fn call{n}() {{ call{n + 1}(); call{n + 1}(); }}" for n in range(16)]
    many = "\n".join([*lines, "fn call16() { let some = 1u + 1u; }"])
    changed = text.replace("struct Step", f"{many}\nstruct Step")
    (unused,) = run(SCRIPT, texts=[(changed, tiles)])
    assert unused["objection"] == ""
    (found,) = run(SCRIPT, texts=[(changed.replace(FOR, f"  call0();\n{FOR}"), 1)])
    assert "once its functions are written out" in found["objection"]


def nested(loops: int, inside: str) -> str:
    """`loops` loops of 999,999,999 turns."""
    heads = (f"for (var n{n}: i32 = 0; n{n} < 999999999; n{n} += 1) {{ " for n in range(loops))
    return "".join(heads) + inside + " }" * loops


@pytest.mark.parametrize("head", ["fn long", "fn\nlong", "fn  long", "fn // of 4 loops\nlong"])
def test_functions_count_however_they_are_written(good: Text, head: str) -> None:
    text, tiles = good
    changed = text.replace("struct Step", f"{head}() {{ {nested(4, 'n0;')} }}\nstruct Step")
    (found,) = run(SCRIPT, texts=[(changed.replace(FOR, f"  long();\n{FOR}"), tiles)])
    assert "letters" in found["objection"]


NEVER = "for (var never: i32 = 5; never < 0; never += 1) { n0; }"


@pytest.mark.parametrize(
    "body",
    [nested(40, NEVER), nested(2, ""), nested(2, "if (n0 == n1) { }")],
    ids=["infinite times none", "empty loops", "a block without a statement"],
)
def test_loops_count_whatever_is_in_them(good: Text, body: str) -> None:
    text, tiles = good
    (found,) = run(SCRIPT, texts=[(text.replace(FOR, f"  {body}\n{FOR}"), tiles)])
    assert "letters" in found["objection"]


def test_a_long_statement_counts_as_it_is_long(good: Text) -> None:
    text, _ = good
    long = f"  let sum = 1u{' + 1u' * 40_000};\n"
    inside = text.replace(FOR, FOR + long)
    (once, often) = run(SCRIPT, texts=[(inside, 1), (inside, 2**28)])
    assert once["objection"] == ""
    assert "letters" in often["objection"]


def test_facts_are_those_of_the_text_without_comments(good: Text) -> None:
    """Else its workgroups would have no threads, and its memory other elements."""
    text, tiles = good
    head = r"(?m)^(@compute .*|@group\(0\) @binding\(0\).*)$"
    (plain, noted) = run(SCRIPT, texts=[(text, tiles), (re.sub(head, r"\1// so", text), tiles)])
    assert plain == noted
    assert noted["group"] == 64


def test_many_functions_and_loops_are_refused_before_they_are_followed(good: Text) -> None:
    text, tiles = good
    chain = "".join(f"fn c{n}() {{ c{n + 1}(); }}\n" for n in range(9000))
    loops = "".join(FOR.replace("block5", f"more{n}") + "  }\n" for n in range(2000))
    found = run(
        SCRIPT,
        texts=[
            (text.replace("struct Step", f"{chain}struct Step"), tiles),
            (text.replace(FOR, f"{loops}{FOR}"), tiles),
        ],
    )
    assert "functions" in found[0]["objection"]
    assert "variables of loops" in found[1]["objection"]


ASKING = """
const { objectionTo } = await import('TUNE/../engine/gpu_vet.js');
const found = <texts>.map(([text, tiles, features]) => objectionTo(new TextEncoder().encode(text), tiles, features));
console.log(JSON.stringify(found));
"""  # noqa: E501


@pytest.mark.parametrize("name", LINES)
def test_features_pass_where_the_device_was_opened_with_them(good: Text, name: str) -> None:
    text, tiles = good
    asking = head({name}) + text
    others = sorted(set(LINES) - {name})
    found = run(ASKING, texts=[(asking, tiles, [name]), (asking, tiles, others)])
    assert found == ["", f"it needs {name}, which the device was not opened with"]


def bytes_kernel() -> Kernel:
    graph, _ = quantised_graph(12)
    (kernel,) = (
        s.kernel for s in steps_of(optimise(graph, PACKING)) if MATRIX_GEMM.suits(s.kernel)
    )
    return kernel


def test_candidates_that_need_features_pass() -> None:
    kernel = bytes_kernel()
    schedules = space_of(kernel, CLASSES["webgpu"]).schedules[::5]
    assert {s.tag for s in schedules} == {"dot", "matrix"}
    made = [build(kernel, s, "wgsl", "core") for s in schedules]
    texts = [(one.module.decode(), one.tiles, one.features) for one in made]
    assert run(ASKING, texts=texts) == [""] * len(texts)
    bare = [(text, tiles, []) for text, tiles, _ in texts]
    assert all("which the device was not opened with" in one for one in run(ASKING, texts=bare))


def test_products_by_subgroups_pass() -> None:
    """In groups of whole subgroups, of each size; a text is not too long."""
    kernel = product_kernel("mk,kn->mn", (4096, 4096), (4096, 4096), weight=True)
    found = [s for s in space_of(kernel, CLASSES["webgpu"]).schedules if s.tag == "shuffle"]
    assert {s.unrolled for s in found if isinstance(s, SubgroupGemmSchedule)} == {False, True}
    made = [build(kernel, s, "wgsl", "core") for s in found]
    texts = [(one.module.decode(), one.tiles, one.features) for one in made]
    assert run(ASKING, texts=texts) == [""] * len(texts)
    bare = [(text, tiles, []) for text, tiles, _ in texts]
    assert all("it needs subgroups" in one for one in run(ASKING, texts=bare))


MATRICES = {
    "a pointer of its own": ("(&b", "(&memory + b"),
    "a pointer to memory": ("(&b5, ", "(&memory, "),
    "a part of a part": ("(&b5, ", "(&b5[t3][t3], "),
    "a part by a sum": ("(&b5, ", "(&b5[t3 + 1], "),
    "a pointer in a variable": ("let left0_0 = ", "let p = &b5; let left0_0 = "),
    "a pointer in a call": ("let left0_0 = ", "f(&b5, 0); let left0_0 = "),
    "many types": ("Load<", "Load<" + "subgroup_matrix_left<i8, 8, 8>, " * 9),
}


@pytest.mark.parametrize("change", MATRICES)
def test_no_other_pointers_pass(change: str) -> None:
    old, new = MATRICES[change]
    made = build(bytes_kernel(), MatrixGemmSchedule(rows=1, columns=1), "wgsl", "core")
    text = re.sub(r"&b\d+(\[\w+\])?, ", "&b5, ", made.module.decode())
    assert old in text
    given = [(t, made.tiles, made.features) for t in (text, text.replace(old, new))]
    found = run(ASKING, texts=given)
    assert found[0] == ""
    assert "&'" in found[1]


def test_features_are_asked_for_once_in_the_first_lines(good: Text) -> None:
    text, tiles = good
    every = sorted(LINES)
    wrong = [
        *(head({name}) * 2 + text for name in LINES),
        text.replace("struct Step", "enable f16;\nstruct Step"),
        "enable f16, subgroups;\n" + text,
        "diagnostic(off, derivative_uniformity);\n" + text,
        "enable clip_distances;\n" + text,
    ]
    found = run(
        ASKING, texts=[(head(every) + text, tiles, every), *((w, tiles, every) for w in wrong)]
    )
    assert found[0] == ""
    assert all(re.match("it has '(enable|requires|diagnostic)'", one) for one in found[1:])


def test_many_invocations_count(good: Text) -> None:
    text, _ = good
    (few, many) = run(SCRIPT, texts=[(text, 2**20), (text, 2**34)])
    assert few["objection"] == ""
    assert "letters" in many["objection"]
