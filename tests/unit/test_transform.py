"""Foreign CUDA sources: what is refused and why, what NVIDIA's compiler takes, and the text."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from test_cuda import nvrtc as nvrtc

from tilewright.base.errors import NotElastic, UsageError
from tilewright.elastic.transform import ElasticOptions, Transformed, transform
from tilewright.elastic.transform.cpu_trial import shard, tasks_of, tiles_per_task

SOURCES = Path(__file__).parents[1] / "elastic_sources"
Nvrtc = Callable[[str, str], bytes]


def made(text: str, **options: bool) -> Transformed:
    return transform(text, "k.cu", options=ElasticOptions(**options))


#: Bodies of a kernel with the parameters `int *p, int n`: the line of the reason, and its words.
REFUSED: dict[str, tuple[str, int, str]] = {
    "grid sync": ("cooperative_groups::this_grid().sync();", 2, "whole grid"),
    "cluster": ("auto c = cooperative_groups::this_cluster();\nc.sync();", 2, "cluster"),
    "launch": ("if (n)\n  other<<<1, 32>>>(p);", 3, "launches kernels"),
    "launch by its buffer": (
        "void *b = cudaGetParameterBufferV2((void *)reads, dim3(1), dim3(1), 0);\n"
        "cudaLaunchDeviceV2(b, 0);", 2, "launches kernels",
    ),
    "launch by a call": ("cudaLaunchKernel((void *)reads, 1, 1, 0, 0, 0);", 2, "launches kernels"),
    "launch at its end": (
        "p[0] = 1;\nother<<<n, 32, 0, cudaStreamTailLaunch>>>(p);", 3, "launches kernels"
    ),
    "launch in assembly": (
        'asm("call (%0), cudaLaunchDeviceV2, (%1, %1);" : "=r"(n) : "l"(p));', 2, "launches kernels"
    ),
    "its own end": ('p[0] = 1;\nasm volatile("exit;");', 3, "ends the thread"),
    "barrier objects": ("__shared__ cuda::barrier<cuda::thread_scope_block> b;", 2, "barrier obj"),
    "mbarrier": ('asm("mbarrier.init.shared.b64 [%0], 1;" :: "r"(n));', 2, "barrier obj"),
    "flag": ("while (atomicAdd(p, 0) < n) {\n}", 2, "waits for another block"),
    "volatile flag": (
        "volatile int *f = p;\nwhile (*(volatile int *)p == 0)\n  ;", 3, "waits for another block"
    ),
    "flag by jumps": (
        "for (;;) {\n  if (*(volatile int *)(p + n)) break;\n}", 2, "waits for another block"
    ),
    "plain flag": ("while (p[n] == 0)\n  __threadfence();", 2, "waits for another block"),
    "flag read again": (
        "int v;\ndo {\n  v = atomicAdd(p, 0);\n} while (v < n);", 3, "waits for another block"
    ),
    "lanes in a loop": (
        "for (int i = 0; i < n; i++) {\n  if (threadIdx.x > i) return;\n"
        "  p[i] = __shfl_down_sync(~0u, n, 1);\n}", 3, "some lanes of a warp return",
    ),
    "left before a barrier": (
        "if (threadIdx.x == 3) return;\n__syncthreads();", 2, "before the others reach a barrier"
    ),
    "left behind by a loop before a barrier": (
        "for (int i = 0; i < n; i++) {\n  if (threadIdx.x == i) continue;\n"
        "  if (i == 3) return;\n}\n__syncthreads();", 4, "before the others reach a barrier"
    ),
    "left before a vote": (
        "if (p[threadIdx.x]) return;\np[0] = __syncthreads_count(n);", 2, "before the others reach"
    ),
    "left before a group's barrier": (
        "auto g = cooperative_groups::this_thread_block();\nif (threadIdx.x) return;\ng.sync();",
        3, "before the others reach",
    ),
    "left before a barrier in assembly": (
        'if (threadIdx.x == 3) return;\nasm("bar.sync 1, 64;");', 2, "before the others reach"
    ),
    "groups of lanes": (
        "if (threadIdx.x == 3) return;\nauto t = cooperative_groups::tiled_partition<32>("
        "cooperative_groups::this_thread_block());", 2, "a library function",
    ),
    "a lambda's own": ("auto f = [](int v) { return v + blockIdx.x; };", 2, "default capture"),
    "a pointer": ("int (*f)(int) = reads;\np[0] = f(n);", 2, "pointer to a function"),
    "an operator": ("p[0] = Odd{}(n);", 2, "operator"),
    "odd assembly": ('asm("mov.b64 %0, %%ctaid;" : "=l"(p));', 2, "not understood"),
    "a taken name": ("int tw_tile = n;\np[0] = tw_tile;", 1, "uses the name tw_tile"),
    "half a statement": (
        "if (n)\n#ifdef A\n  {\n#else\n  for (;;) {\n#endif\n  }", 0, "could not read"
    ),
    "no end": ("p[0] = (1;", 2, "could not read"),
}  # fmt: skip
HELPERS = """
__device__ int reads(int v) { return v + blockIdx.x; }
struct Odd { __device__ int operator()(int v) { return v + blockIdx.x; } };
"""


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_its_line(name: str) -> None:
    body, line, why = REFUSED[name]
    helpers = HELPERS if name in ("a pointer", "an operator") else ""
    text = f"__global__ void k(int *p, int n) {{\n{body}\n}}\n{helpers}"
    (report,) = made(text).kernels
    assert not report.elastic
    assert any(why in r.why for r in report.reasons), report.reasons
    if line and not helpers:
        assert line in [r.place.line for r in report.reasons if why in r.why]
    assert made(text).text == text, "a source without elastic forms stays as it is"


ACCEPTED = {
    "a lock": "while (atomicCAS(p, 0, 1) != 0) {\n}\n*(p + 1) += 1;\natomicExch(p, 0);",
    "compare and swap": (
        "int old = *p, seen;\ndo {\n  seen = old;\n  old = atomicCAS(p, seen, seen + n);\n"
        "} while (old != seen);"
    ),
    "a list": "int i = n;\nwhile (p[i] != 0) i = i - 1;",
    "volatile lanes": (
        "__shared__ volatile int s[64];\ns[threadIdx.x] = n;\n"
        "for (int i = 0; i < s[0]; i++) p[i] = s[i];"
    ),
    "a named barrier of all": 'asm volatile("bar.sync 1, 64;");\np[0] = 1;',
    "a host's function of the same name": "int host = n;\np[0] = host;",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str, nvrtc: Nvrtc) -> None:
    text = f"__global__ void k(int *p, int n) {{\n{ACCEPTED[name]}\n}}\n"
    host = "void host(int *p) { k<<<1, 2>>>(p, 3); }\n"
    (report,) = made(text + host).kernels
    assert report.elastic, report.reasons
    assert nvrtc(made(text + host, device=True).text, "sm_90")


def test_no_kernel_is_lost() -> None:
    """Where the parser sees none, the report says so."""
    found = made(
        "#define KERNEL __global__ void\nKERNEL hidden(int *p) { p[blockIdx.x] = 1; }\n"
        "__global__ void declared(int *p);\n// __global__ void told(int *p) {}\n"
        "__global__ void k(int *p) { p[blockIdx.x] = 1; }\n"
    )
    assert [(k.name, k.elastic) for k in found.kernels] == [("k", True), ("KERNEL", False)]
    assert "macro" in found.kernels[1].reasons[0].why
    (untyped,) = made("__global__ k(int *p) { p[blockIdx.x] = 1; }\n").kernels
    assert (untyped.name, untyped.elastic) == ("k", False)


def test_a_kernel_that_the_parser_lost_is_reported() -> None:
    """The text before it takes the mark of the kernel along, so no node of the tree has it."""
    text = (
        "#define S(a) #a\n"
        '__device__ int w() { int r; asm("mov.u32 %0, %%" S(ctaid) ".x;" : "=r"(r)); return r; }\n'
        "__global__ void k(int *p) { p[w()] = 1; }\n"
    )
    (report,) = made(text).kernels
    assert (report.name, report.place.line, report.elastic) == ("k", 3, False)


@pytest.mark.parametrize("head", ["void k(int *p) {", "void k(int *p)"])
def test_a_kernel_with_two_heads_takes_no_other_along(head: str, nvrtc: Nvrtc) -> None:
    """Conditionals around what is less than a definition."""
    other, begin = f"__global__ {head.replace('int', 'long')}", "" if "{" in head else "{\n"
    found = made(
        "__global__ void before(int *p) { p[blockIdx.x] = 1; }\n"
        f"#ifdef A\n{other}\n#else\n__global__ {head}\n#endif\n{begin}p[blockIdx.x] = 2;\n}}\n"
        "__global__ void after(int *p) { p[blockIdx.x] = 3; }\n",
        device=True,
    )
    assert {k.name: k.elastic for k in found.kernels} == {"before": True, "k": False, "after": True}
    assert sorted(k.place.line for k in found.kernels if k.name == "k") == [3, 5]
    assert nvrtc(found.text, "sm_90")


def test_several_kernels_each_for_itself() -> None:
    found = made(
        "__global__ void good(int *p) { p[blockIdx.x] = 1; }\n"
        "__global__ void bad(int *p) { good<<<1, 1>>>(p); }\n"
    )
    assert [(k.name, k.elastic) for k in found.kernels] == [("good", True), ("bad", False)]
    assert "good_elastic" in found.text
    assert "bad_elastic" not in found.text
    found.require()
    with pytest.raises(NotElastic, match="launches kernels") as raised:
        made("__global__ void bad(int *p) { bad<<<1, 1>>>(p); }\n").require()
    assert raised.value.facts["line"] == 1
    with pytest.raises(NotElastic, match="no kernel"):
        made("int main() {}\n").require()


#: The text of a macro is not parsed; the line is that of its definition.
BEHIND: dict[str, tuple[str, str]] = {
    "a launch in a function": (
        "__device__ void go(int *p) {\n  other<<<1, 32>>>(p); }\n",
        "launches kernels",
    ),
    "a launch in a macro": ("\n#define go(p) other<<<1, 32>>>(p)\n", "launches kernels"),
    "a macro of a macro": (
        "#define go(p) more(p)\n#define more(p) cudaLaunchDevice(p, 0)\n",
        "launches kernels",
    ),
    "grid sync in a macro": (
        "\n#define go(p) cooperative_groups::this_grid().sync()\n",
        "whole grid",
    ),
    "barrier objects in a macro": (
        "\n#define go(p) cuda::barrier<cuda::thread_scope_block> b\n",
        "barrier objects",
    ),
}


@pytest.mark.parametrize("name", BEHIND)
def test_what_is_refused_is_found_behind_a_call(name: str) -> None:
    text, why = BEHIND[name]
    (report,) = made(f"{text}__global__ void k(int *p) {{ go(p); }}\n").kernels
    assert [(r.place.line, why in r.why) for r in report.reasons] == [(2, True)]
    # a kernel that does not come by it has its forms
    (report,) = made(f"{text}__global__ void k(int *p) {{ p[0] = 1; }}\n").kernels
    assert report.elastic


ASSEMBLY = r"""
__device__ unsigned place() {
  unsigned x;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(x));
  return x;
}
__global__ void k(unsigned *p, int n) {
  unsigned y, z;
  asm("{ .reg .u32 t; mov.u32 t, %%nctaid.y; add.u32 %0, t, %1; }" : "=r"(y) : "r"(n) : "memory");
  asm("mov.u32 %0, %%ctaid.z;" : "=r"(z) : : "memory");
  asm volatile("bar.sync 0;" ::: "memory");
  p[threadIdx.x] = place() + y + z;
}
"""


def test_registers_in_assembly_become_operands(nvrtc: Nvrtc) -> None:
    found = made(ASSEMBLY)
    assert found.kernels[0].elastic, found.kernels[0].reasons
    forms = found.text[len(found.text) - len(found.text.partition("elastic forms of k")[2]) :]
    assert "ctaid" not in forms
    assert '"r"(tw_tile.tw_grid.y)' in forms
    ptx = nvrtc(found.text, "compute_90").decode()
    own = ptx[ptx.index(".entry _Z9k_elastic") :].partition(".entry _Z7k_slice")[0]
    assert "%nctaid.y" not in own
    assert "%ctaid.z" not in own


@pytest.mark.one_in(2)
@pytest.mark.parametrize("options", [{}, {"fold": True}, {"pad": True}])
@pytest.mark.parametrize("architecture", ["compute_75", "sm_90"])
def test_nvidias_compiler_takes_all_forms(
    nvrtc: Nvrtc, options: dict[str, bool], architecture: str
) -> None:
    text = (SOURCES / "samples.cu").read_text()
    found = made(text, **options)
    code = nvrtc(found.text, architecture)
    for kernel in found.kernels:
        if kernel.elastic and kernel.name not in ("gemm", "shifted"):
            assert f"{kernel.name}_elastic".encode() in code
            assert f"{kernel.name}_slice".encode() in code
    refused = {k.name for k in found.kernels if not k.elastic}
    together = {"reduce", "scan", "transpose", "gram", "histogram", "bodies", "softmax", "gemm",
                "votes", "last_block", "triangle"}  # fmt: skip
    assert refused == (together if options.get("fold") else set())


def test_shared_memory_and_registers_stay_within_bounds(nvrtc: Nvrtc) -> None:
    """The elastic form needs 24 bytes more of shared memory, for the task."""
    text = "__global__ void k(float *p) { __shared__ float s[12282]; s[0] = *p; *p = s[1]; }"
    assert nvrtc(made(text).text, "sm_90")


def test_headers_stay_and_what_they_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "place.cuh").write_text(
        "#pragma once\n__device__ int place() { return blockIdx.x; }\n"
    )
    (tmp_path / "names.h").write_text("#define N 3\n")
    begin = '#include "place.cuh"\n#include "names.h"\n'
    refused = begin + "__global__ void k(int *p) { p[place()] = N; }\n"
    found = transform(refused, "k.cu", [tmp_path])
    (reason,) = found.kernels[0].reasons
    assert (str(reason.place), "header" in reason.why) == ("place.cuh:2", True)
    assert found.text == refused
    good = begin + "__global__ void k(int *p) { p[blockIdx.x] = N; }\n"
    found = transform(good, "k.cu", [tmp_path])
    assert found.kernels[0].elastic, found.kernels[0].reasons
    assert begin in found.text
    assert "int place()" not in found.text
    unknown = begin + "__global__ void k(int *p) { p[blockIdx.x] = M; }\n"
    assert "not found" in transform(unknown, "k.cu").kernels[0].reasons[0].why


def test_padding_only_where_it_is_safe_and_pays() -> None:
    kernel = (
        "__global__ void k(float *p) {{\n  __shared__ float s[32][32];\n"
        "  s[threadIdx.y][threadIdx.x] = p[0];\n  __syncthreads();\n  {use}\n}}\n"
    )
    uses = {
        "p[1] = s[threadIdx.x][threadIdx.y];": True,
        "const int t = threadIdx.x / 2; p[1] = s[t][0];": True,
        "p[1] = s[threadIdx.y][threadIdx.x];": False,
        "float *q = &s[threadIdx.x][0]; p[1] = q[40];": False,
        "float (*q)[32] = s; p[1] = s[threadIdx.x][0] + q[1][0];": False,
        "p[1] = s[threadIdx.x][0] + sizeof(s);": False,
    }
    for use, padded in uses.items():
        found = made(kernel.format(use=use), pad=True)
        assert any("one element longer" in n for n in found.kernels[0].notes) == padded, use


#: Bodies and what stands before them; whether threads of a tile have to wait before the next.
TOGETHER = {
    "alone": ("", "p[blockIdx.x] = n;", False),
    "shared": ("", "__shared__ int s[4]; s[n] = 1; p[n] = s[0];", True),
    "of the file": ("extern __shared__ int s[];", "s[n] = 1; p[n] = s[0];", True),
    "by a macro": ("#define MINE __shared__ int s[4];", "MINE s[n] = 1; p[n] = s[0];", True),
    "by an operator": (
        "struct A { __device__ int operator()(int v) const { __shared__ int m[4]; m[v] = v;"
        " return m[0]; } };",
        "p[n] = A()(n);",
        True,
    ),
    "by a conversion": (
        "struct S { __device__ operator int *() const { extern __shared__ int m[]; return m; } };",
        "int *s = S(); s[n] = 1; p[n] = s[0];",
        True,
    ),
    "by who knows whom": ("", "p[n] = block_sum(n);", True),
    "by CUDA's own": ("", "atomicAdd(p + n, __ldg(p)); p[n] = min(n, int(sqrtf(n)));", False),
    "called": ("__device__ void w() { __syncthreads(); }", "w(); p[n] = 0;", True),
}


@pytest.mark.parametrize("case", TOGETHER)
def test_threads_wait_between_tiles_only_where_they_share(case: str) -> None:
    before, body, waits = TOGETHER[case]
    text = made(f"{before}\n__global__ void k(int *p, int n) {{ {body} }}").text
    task = text[text.index("k_elastic") : text.index("tilewright::tw_advance")]
    assert ("__syncthreads" in task.partition("break;")[2]) == waits


def test_blocks_of_known_size() -> None:
    source = "__global__ void a(int *p) { *p = 1; }\n__global__ void __launch_bounds__(64) b() {}"
    text = transform(source, "k.cu", options=ElasticOptions(threads={"a": 32, "b": 64})).text
    assert "void __launch_bounds__(32) a_elastic(" in text
    assert "void __launch_bounds__(32) a_slice(" in text
    assert "void __launch_bounds__(64) b_elastic(" in text
    for wrong in ({"c": 32}, {"a": 0}, {"a": 1025}):
        with pytest.raises(UsageError):
            transform(source, "k.cu", options=ElasticOptions(threads=wrong))


@pytest.mark.parametrize(
    ("tiles", "workers", "tile_us", "each"),
    [(100, 8, 0, 2), (100, 1000, 0, 1), (10**6, 4, 0, 8), (10**6, 4, 5.0, 3), (10**6, 4, 99.0, 1)],
)
def test_tiles_of_a_task(tiles: int, workers: int, tile_us: float, each: int) -> None:
    assert tiles_per_task(tiles, workers, tile_us) == each
    given = shard((tiles, 1, 1), (32, 1, 1), 1, each=each)
    assert (tasks_of(given) - 1) * each < tiles - 1 <= tasks_of(given) * each


def test_a_task_has_a_tile() -> None:
    with pytest.raises(UsageError):
        shard((4, 1, 1), (32, 1, 1), each=0)


#: One statement of a kernel with the parameters `int *p, int n`, by a number.
REPEATED: dict[str, Callable[[int], str]] = {
    "returns of lanes": lambda i: (
        f"if (p[threadIdx.x + blockIdx.x] == {i}) return; p[{i}] = __shfl_sync(~0u, n, 0);"
    ),
    "returns of all": lambda i: f"if (blockIdx.x == {i}) return; __syncthreads(); p[{i}] = 1;",
    "returns in loops": lambda i: f"for (int i = 0; i < n; i++) if (n == {i}) return;",
    "returns in blocks": lambda i: f"{{ int q = n + {i}; if (q > {i}) {{ p[0] = q; return; }} }}",
    "lambdas": lambda i: f"auto l{i} = [&](int a) {{ return a + blockIdx.x; }}; p[{i}] = l{i}(n);",
    "numbers of blocks": lambda i: f"p[{i}] = blockIdx.x;",
}


@pytest.mark.parametrize("name", REPEATED)
def test_twice_the_text_takes_twice_the_steps(name: str) -> None:
    """A step is a call of a Python function or generator, or one of theirs."""

    def steps(count: int) -> int:
        body = "\n".join(REPEATED[name](i) for i in range(count))
        text = f"__global__ void k(int *p, int n) {{\n{body}\np[blockIdx.x] = 1;\n}}\n"
        seen = 0

        def count_call(*_: object) -> None:
            nonlocal seen
            seen += 1

        sys.setprofile(count_call)
        try:
            made(text)
        finally:
            sys.setprofile(None)
        return seen

    assert steps(400) < 2.2 * steps(200)
