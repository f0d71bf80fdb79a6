"""Ways to read the block's number, by kind: each is right, or refused with its line and reason.

Kinds are those of docs/elastic-transform.md.  `USE` in a text is a kernel that reads the expression
behind it.  What is accepted compiles with NVIDIA's compiler, plain and with its forms; the bits are
tested by test_elastic_fuzz.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from test_cuda import nvrtc as nvrtc

from tilewright.elastic.transform import ElasticOptions, transform

Nvrtc = Callable[[str, str], bytes]
W = "__device__ int w() { return blockIdx.x; }\n"
RANGE = "struct R { int v[1]; __device__ int *begin() { v[0] = %s; return v; }\n" \
        "__device__ int *end() { return v + 1; } };\n"  # fmt: skip
SUM = "KERNEL R r; int s = 0;\nfor (int e : r) s += e; x[s] = 1; }"


def text_of(text: str) -> str:
    kernel = "__global__ void k(int *x) {"
    used = re.sub(r"USE (.*)", lambda m: f"{kernel} x[threadIdx.x + 4 * ({m[1]})] = 1; }}", text)
    return used.replace("KERNEL", kernel) + "\n"


#: By kind: a source, the line of the reason, and a part of it.
REFUSED: dict[str, tuple[str, int, str]] = {
    "attribute behind the name": (
        "__global__ void k [[maybe_unused]] (int *x) { x[blockIdx.x] = 1; }", 1, "attributes"
    ),
    "name with its scope": (
        "namespace q { __global__ void k(int *x); }\n"
        "__global__ void q::k(int *x) { x[blockIdx.x] = 1; }", 2, "a scope",
    ),
    "constructor's initialiser": (
        "struct S { int b;\n__device__ S() : b(blockIdx.x) {} };\nUSE S().b", 2, "a class reads"
    ),
    "constructor of a base": (
        "struct B { int b; __device__ B(int v) : b(v) {} };\n"
        "struct S : B { __device__ S() : B(blockIdx.x) {} };\nUSE S().b", 2, "a class reads",
    ),
    "constructor outside": (
        "struct S { int b; __device__ S(); };\n__device__ S::S() : b(blockIdx.x) {}\nUSE S().b",
        2, "constructor",
    ),
    "default member": ("struct S {\nint b = blockIdx.x; };\nUSE S().b", 2, "a class reads"),
    "default member by a call": (W + "struct S { int b = w(); };\nUSE S().b", 2, "a class reads"),
    "default argument": (
        "__device__ int f(int b = blockIdx.x) { return b; }\nUSE f()", 1, "the head of a function"
    ),
    "default argument by a macro": (
        "#define BX blockIdx.x\n__device__ int f(int b = BX) { return b; }\nUSE f()", 2, "the head"
    ),
    "default argument of a lambda": (
        "KERNEL\nauto l = [=](int b = blockIdx.x) { return b; }; x[l()] = 1; }",
        2, "a default argument reads",
    ),
    "default argument of a local declaration": (
        W + "__device__ int f(int b) { return b; }\nKERNEL int f(int b = w()); x[f()] = 1; }",
        3, "a default argument reads",
    ),
    "lambda at namespace scope": (
        "static auto l = [] __device__ () { return (int)blockIdx.x; };\nUSE l()", 1, "than a plain"
    ),
    "constant lambda": (
        "KERNEL constexpr auto l = [=] { return (int)blockIdx.x; }; x[l()] = 1; }",
        1, "a static or constant variable reads",
    ),
    "pasted word": (
        "#define C(a) block##a\nUSE C(Idx).x", 1, "token pasting may produce blockIdx"
    ),
    "pasted call": (W + "#define C(a) a##w()\nUSE C()", 2, "pastes tokens or makes strings"),
    "digraph": ("%:define BX blockIdx.x\nUSE BX", 1, 'a sign is spelled "%:"'),
    "trigraph": ("??=define BX blockIdx.x\nUSE BX", 1, "three characters"),
    "name by its number": ("USE \\u0062lockIdx.x", 1, "by its number"),
    "line within a name": ("KERNEL x[bl\\\nockIdx.x] = 1; }", 1, "a line ends within a name"),
    "shadowed by a parameter": (
        "__device__ int f(uint3 blockIdx) { return blockIdx.x; }\nUSE f(uint3{})", 1, "the head"
    ),
    "shadowed by a variable": (
        "KERNEL\nint blockIdx = 3; x[blockIdx] = 1; }", 2, "cannot be rewritten"
    ),
    "shadowed by a member": (
        "struct A {\nuint3 blockIdx; };\nstruct S : A { __device__ int f() { return blockIdx.x; } "
        "};\nUSE S{}.f()", 2, "a class reads",
    ),
    "shadowed by an enumerator": ("enum { blockIdx = 3 };\nUSE blockIdx", 1, "redefined"),
    "shadowed by a namespace's": (
        "namespace q { __device__ uint3 blockIdx; }\nUSE q::blockIdx.x", 1, "redefined"
    ),
    "shadowed by a template's": (
        "template <int blockIdx> __device__ int f() { return blockIdx; }\nUSE f<0>()", 1, "the head"
    ),
    "locally declared function": (W + "KERNEL int w(); x[w()] = 1; }", 2, "something else"),
    "locally declared function of another file": (
        "KERNEL\nextern __device__ int other(); x[other()] = 1; }", 2, "is defined elsewhere"
    ),
    "function of another file by a macro": (
        "#define DEVICE __device__\nDEVICE int other();\nUSE other()", 2, "is defined elsewhere"
    ),
    "function that a macro names": (
        "#define W w\n__device__ int W() { return blockIdx.x; }\nUSE w()", 2, "a macro or operator"
    ),
    "class that a macro names": (
        "#define S T\nstruct S { int b; __device__ S() : b(blockIdx.x) {} };\nUSE T().b",
        2, "a macro or operator",
    ),
    "kernels that a macro names": (
        "#define NAME k\n__global__ void NAME(int *x) { x[blockIdx.x] = 1; }\n#undef NAME\n"
        "#define NAME k2\n__global__ void NAME(int *x) { x[blockIdx.x] = 2; }",
        2, "part of the kernel's head",
    ),
    "intrinsic": ("USE __nvvm_read_ptx_sreg_ctaid_x()", 1, "may read the block's number"),
    "details of a library": (
        "#include <cooperative_groups.h>\nnamespace q = cooperative_groups;\n"
        "USE q::details::grid::block_rank()", 3, "details of cooperative groups",
    ),
    "objects of a library whose namespace is open": (
        "#include <cuda/barrier>\nusing namespace cuda;\n"
        "KERNEL __shared__ barrier<thread_scope_block> b; x[0] = 1; }", 3, "barrier objects",
    ),
    "objects of a library by another name": (
        "#include <cuda/barrier>\nnamespace c = cuda;\n"
        "KERNEL __shared__ c::barrier<c::thread_scope_block> b; x[0] = 1; }", 3, "barrier objects",
    ),
    "function of a library's object": (
        "#include <cooperative_groups.h>\nstruct S { __device__ int size() { return blockIdx.x; } "
        "};\nKERNEL S s; auto b = cooperative_groups::this_thread_block();\n"
        "x[b.size() + s.size()] = 1; }", 4, "a library's function",
    ),
    "split assembly": (
        '__device__ int f() { int r; asm("mov.u32 %0, %%cta" "id.x;" : "=r"(r)); return r; }\n'
        "USE f()", 1, "name of a register",
    ),
    "split line of assembly": (
        'KERNEL int r; asm("mov.u32 %0, %%cta\\\nid.x;" : "=r"(r)); x[r] = 1; }', 1, "by their num"
    ),
    "assembly with a macro's name": (
        '#define RD(v, r) asm("mov.u32 %0, %%" #r "id.x;" : "=r"(v))\n'
        "KERNEL int b; RD(b, cta); x[b] = 1; }", 1, "composes the text of assembly",
    ),
    "whole register": (
        'KERNEL int a; asm("{ .reg .v4 .u32 t; mov.v4.u32 t, %%ctaid; }" : "=r"(a)); x[a] = 1; }',
        1, "is not known",
    ),
    "assembly that returns": ('KERNEL x[0] = 1;\nasm volatile("ret;"); }', 2, "ends the thread"),
    "word of the forms": ("#define int long\nUSE blockIdx.x", 1, "int redefines a word"),
    "name of the forms": ("#define tw_shard 1\nUSE blockIdx.x", 1, "tw_shard redefines a word"),
    "member that the forms write": (
        "#define x y\nKERNEL int b; "
        'asm("mov.u32 %0, %%ctaid.x;" : "=r"(b)); x[b] = 1; }', 1, "x redefines a word",
    ),
    "loop over a range": (RANGE % "blockIdx.x" + SUM, 4, "begin, which is called here"),
    "loop over a range with a barrier": (
        RANGE % "0; __syncthreads()" + SUM, 4, "begin, which is called here"
    ),
    "bound parts": (
        "template <class T> struct P { template <int N> __device__ int get() "
        "{ return blockIdx.x; } };\nKERNEL P<int> p;\nauto [b] = p; x[b] = 1; }", 3, "get, which is"
    ),
    "static variable": (
        "KERNEL\nstatic int c; atomicAdd(&c, 1); x[blockIdx.x] = c; }", 2, "a static variable"
    ),
    "static variable of a macro": (
        "#define CELL static int c\nKERNEL CELL; c = 1; x[blockIdx.x] = c; }", 1, "a static var"
    ),
    "wait in a condition": (
        "__device__ int ready(int *p) { return *(volatile int *)p; }\n"
        "KERNEL\nwhile (!ready(x)) ; }", 3, "waits for another block",
    ),
    "wait in a macro": (
        "#define WAIT(p) while (atomicAdd(p, 0) == 0)\nKERNEL WAIT(x); }", 1, "may wait for another"
    ),
    "wait by a jump": (
        "KERNEL again:\nif (atomicAdd(x, 0) == 0)\ngoto again; }", 3, "may wait for another block"
    ),
    "wait in a constructor": (
        "struct L { __device__ L(int *p) {\nwhile (*(volatile int *)p == 0) ; } };\n"
        "KERNEL L l(x); }", 2, "waits",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_with_its_line(kind: str) -> None:
    source, line, why = REFUSED[kind]
    text = text_of(source)
    made = transform(text, "k.cu")
    assert made.kernels
    for kernel in made.kernels:
        assert not kernel.elastic, kernel.name
    found = [(r.place.line, r.why) for r in made.kernels[0].reasons]
    assert any(at == line and why in words for at, words in found), found
    assert made.text == text, "a source without elastic forms stays as it is"


ACCEPTED = {
    "the word": "USE blockIdx.x",
    "function": W + "USE w()",
    "variable of a function's name": W + "KERNEL int b = w(); { int w = 0; b += w; } x[b] = 1; }",
    "variable of a loop": W + "KERNEL for (int w = 0; w < 1; ++w) ; x[w()] = 1; }",
    "parameter of a lambda": W + "KERNEL auto l = [=](int w) { return w; }; x[l(0) + w()] = 1; }",
    "lambdas within lambdas": W + "USE [=] { return [&] { return w(); }(); }()",
    "method by a template": (
        "struct S { template <int N> __device__ int f() { return blockIdx.x + N; } };\n"
        "template <class T> __device__ int g(T s) { return s.template f<0>(); }\nUSE g(S())"
    ),
    "branch of a constant": (
        "template <int N> __device__ int f() "
        "{ if constexpr (N > 0) return blockIdx.x; else return 0; }\nUSE f<1>() + f<0>()"
    ),
    "another's alias": (
        "template <class T> struct S { __device__ static T f() { return blockIdx.x; } };\n"
        "template <class T> using A = S<T>;\nUSE A<int>::f()"
    ),
    "namespaces": "namespace a { inline namespace b {\n" + W + "} }\nUSE a::w()",
    "linkage of C": 'extern "C" {\n' + W + "USE w()\n}",
    "macro in a body": "KERNEL\n#define BX blockIdx.x\nx[BX] = 1;\n}",
    "macro with a long comment": "#define BX blockIdx.x /* a\n b */ + 0\nUSE BX",
    "macros of users": "#define tile 16\n#define worker 1\n#define first 2\nUSE blockIdx.x",
    "nested macros": (
        "#define m0 blockIdx.x\n"
        + "".join(f"#define m{n + 1} m{n}\n" for n in range(400)) + "USE m400"
    ),
    "comment that goes on": "// comment \\\n__device__ int w() { return 0; }\n" + W + "USE w()",
    "line of another file": '#line 100 "other.cu"\n' + W + "USE w()",
    "assembly": (
        '__device__ int f() { int r; asm("mov.u32 %0, %%ctaid.x;" : "=r"(r)); return r; }\nUSE f()'
    ),
    "constant table": (
        "KERNEL static const int t[2] = {1, 2}; static __shared__ int s[4];\n"
        "s[threadIdx.x] = t[0]; x[blockIdx.x] = s[threadIdx.x]; }"
    ),
    "loop over a plain range": RANGE % "0" + SUM,
    "statement of a macro": (
        "#define ADD(p) do { atomicAdd(p, 1); } while (0)\nKERNEL ADD(x + blockIdx.x); }"
    ),
    "object with arguments": (
        "struct Op { int n; __device__ Op(int v) : n(v) {}\n"
        "__device__ int operator()(int v) { return n + v; } };\n"
        "KERNEL int n = blockIdx.x; Op op(n); x[op(2)] = 1; }"
    ),
    "constness of the number": (
        "template <class T> struct C { static constexpr int v = 0; };\n"
        "template <class T> struct C<const T> { static constexpr int v = 1; };\n"
        "template <class T> __device__ int f(T &v) { static_assert(C<T>::v); return v.x; }\n"
        "KERNEL int i = f(blockIdx); if (i > 99) return; x[i] = __shfl_sync(~0u, i, 0); }"
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ACCEPTED)
def test_accepted(kind: str, nvrtc: Nvrtc) -> None:
    text = text_of(ACCEPTED[kind])
    made = transform(text, "k.cu")
    assert [kernel.reasons for kernel in made.kernels] == [()]
    assert nvrtc(text, "compute_80")
    assert nvrtc(made.text, "compute_80")


#: By kind: a header, a source, and where and why it is refused.
HEADERS: dict[str, tuple[str, str, str, str]] = {
    "barrier": (
        "__device__ void h() { __syncthreads(); }", "if (threadIdx.x) return; h();",
        "k.cu:2", "before the others reach a barrier",
    ),
    "lanes": (
        "__device__ int h(int v = 0) { return __shfl_sync(~0u, v, 0); }",
        "if (threadIdx.x) return; h();", "h.cuh:1", "headers stay",
    ),
    "wait": (
        "__device__ void h(int *p) { while (*(volatile int *)p) ; }", "h(x);",
        "h.cuh:1", "waits for another block",
    ),
    "wait in a condition": (
        "__device__ int h(int *p) { return *(volatile int *)p; }", "while (h(x)) ;",
        "k.cu:2", "waits for another block",
    ),
    "end": (
        '__device__ void h() { asm volatile("exit;"); }', "h();", "h.cuh:1", "ends the thread"
    ),
    "return": ("#define H() return", "H(); __syncthreads();", "h.cuh:1", "of a header returns"),
    "wait in a macro": (
        "#define H(p) while (atomicAdd(p, 0) == 0)", "H(x);", "h.cuh:1", "may wait for another"
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", HEADERS)
def test_what_headers_do_is_seen(kind: str, tmp_path: Path) -> None:
    header, body, place, why = HEADERS[kind]
    (tmp_path / "h.cuh").write_text(header + "\n")
    assert_refused(body, tmp_path, place, why)


def assert_refused(
    body: str, folder: Path, place: str, why: str, options: ElasticOptions | None = None
) -> None:
    text = f'#include "h.cuh"\n__global__ void k(int *x) {{ {body} x[blockIdx.x] = 1; }}\n'
    (kernel,) = transform(text, "k.cu", [folder], options).kernels
    found = [(str(r.place), r.why) for r in kernel.reasons]
    assert any(at == place and why in words for at, words in found), found


#: By kind: a header that the other one includes, that one, a source, and where and why.
BEHIND: dict[str, tuple[str, str, str, str, str]] = {
    "barrier": (
        "__device__ void g() { __syncthreads(); }", "__device__ void h() { g(); }",
        "if (threadIdx.x) return; h();", "k.cu:2", "before the others reach a barrier",
    ),
    "barrier in assembly": (
        '__device__ void g() { asm volatile("bar.sync 0;"); }', "__device__ void h() { g(); }",
        "if (threadIdx.x) return; h();", "k.cu:2", "before the others reach a barrier",
    ),
    "lanes": (
        "__device__ int g(int v) { return __shfl_sync(~0u, v, 0); }",
        "__device__ int h(int v) { return g(v); }",
        "for (int i = 0; i < 3; ++i) { if (threadIdx.x > i) return; x[0] = h(i); }",
        "k.cu:2", "some lanes of a warp return",
    ),
    "functions of a library": (
        "__device__ int g(int v) { return cub::WarpReduce<int>().Sum(v); }",
        "__device__ int h(int v) { return g(v); }", "if (threadIdx.x) return; x[0] = h(1);",
        "k.cu:2", "a library function",
    ),
    "wait in a condition": (
        "__device__ int g(int *p) { return *(volatile int *)p; }",
        "__device__ int h(int *p) { return g(p); }", "while (h(x)) ;",
        "k.cu:2", "waits for another block",
    ),
    "wait by the other's function": (
        "__device__ int g(int *p) { return *(volatile int *)p; }",
        "__device__ void h(int *p) { while (g(p)) ; }", "h(x);",
        "h.cuh:2", "waits for another block",
    ),
    "wait by the other's macro": (
        "#define G(p) (atomicAdd(p, 0) == 0)", "#define H(p) while (G(p))", "H(x);",
        "h.cuh:2", "may wait for another block",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", BEHIND)
def test_what_headers_do_by_each_other_is_seen(kind: str, tmp_path: Path) -> None:
    inner, header, body, place, why = BEHIND[kind]
    (tmp_path / "g.cuh").write_text(inner + "\n")
    (tmp_path / "h.cuh").write_text(f'#include "g.cuh"\n{header}\n')
    assert_refused(body, tmp_path, place, why)


@pytest.mark.parametrize(
    "body", ["__shared__ int s; s = v; return s;", "return cub::BlockReduce<int, 32>().Sum(v);"]
)
def test_threads_that_work_together_in_a_header_are_not_folded(body: str, tmp_path: Path) -> None:
    (tmp_path / "h.cuh").write_text(f"__device__ int h(int v) {{ {body} }}\n")
    assert_refused("x[0] = h(1);", tmp_path, "h.cuh:1", "work together", ElasticOptions(fold=True))


WAIT = "while (!ready(x)) ;"
READY = "ready(int *p) { return *(volatile int *)p; }"
MEET = "if (threadIdx.x) return; meet();"
WAITS, LEFT = "waits for another block", "before the others reach a barrier"
#: By kind: a header, text of the source above the kernel, its body, and the line and a part of the
#: reason.
MACROS: dict[str, tuple[str, str, str, str, str]] = {
    "mark": ("#define DEVICE __device__", f"DEVICE int {READY}", WAIT, "k.cu:3", WAITS),
    "mark of a barrier": (
        "#define DEVICE __device__", "DEVICE void meet() { __syncthreads(); }", MEET,
        "k.cu:3", LEFT,
    ),
    "mark of lanes": (
        "#define DEVICE __device__", "DEVICE void meet() { __shfl_sync(~0u, 1, 0); }",
        "for (int i = 0; i < 3; ++i) { if (threadIdx.x > i) return; meet(); }",
        "k.cu:3", "some lanes of a warp return",
    ),
    "mark of a method": (
        "#define DEVICE __device__", f"struct S {{ DEVICE int {READY} }};",
        "S s; while (!s.ready(x)) ;", "k.cu:3", WAITS,
    ),
    "mark of a constructor": (
        "#define DEVICE __device__",
        "struct S { DEVICE S(int *p) { while (*(volatile int *)p) ; } };", "S s(x);",
        "k.cu:2", WAITS,
    ),
    "mark by way of another macro": (
        "#define A B\n#define B C inline\n#define C __device__", f"A int {READY}", WAIT,
        "k.cu:3", WAITS,
    ),
    "mark that is pasted": (
        "#define MARK(w) __##w##__", f"MARK(device) int {READY}", WAIT, "k.cu:3", WAITS
    ),
    "mark that no source defines": ("", f"DEVICE int {READY}", WAIT, "k.cu:3", WAITS),
    "mark with the type, perhaps in a header that is not there": (
        '#include "missing.h"', f"DEVICE_INT {READY}", WAIT, "k.cu:3", WAITS
    ),
    "mark of the declaration": (
        "__device__ int ready(int *p);", f"int {READY}", WAIT, "k.cu:3", WAITS
    ),
    "mark with the type as an argument": (
        "#define HELPER(type) __device__ type", f"HELPER(int) {READY}", WAIT, "k.cu:3", WAITS
    ),
    "mark with the type, of a barrier": (
        "#define HELPER(type) __device__ type", "HELPER(void) meet() { __syncthreads(); }", MEET,
        "k.cu:3", LEFT,
    ),
    "mark with the type, of the block's number": (
        "#define HELPER(type) __device__ type", "HELPER(int) b() { return blockIdx.x; }",
        "x[b()] = 2;", "k.cu:2", "other than a plain function reads",
    ),
    "mark with an argument": (
        "#define MARK(a) __device__ __attribute__((a))", f"MARK(noinline) int {READY}", WAIT,
        "k.cu:3", WAITS,
    ),
    "mark with an argument, of the block's number": (
        "#define MARK(a) __device__ __attribute__((a))",
        "MARK(noinline) int b() { return blockIdx.x; }", "x[b()] = 2;", "k.cu:2",
        "other than a plain function reads",
    ),
    "whole head": (
        "#define HEAD(name, ...) __device__ int name(__VA_ARGS__)",
        "HEAD(ready, int *p) { return *(volatile int *)p; }", WAIT, "k.cu:3", WAITS,
    ),
    "volatile": (
        "#define word volatile int", "",
        "int n = 0; while (!*(word *)x) n++; x[1] = n;", "k.cu:3", WAITS,
    ),
    "volatile type": (
        "typedef volatile int word;", "",
        "int n = 0; while (!*(word *)x) n++; x[1] = n;", "k.cu:3", WAITS,
    ),
    "volatile variable": (
        "#ifndef H\n#define H\n__device__ volatile int ready;\n#endif", "",
        "int n = 0; while (!ready) n++; x[1] = n;", "k.cu:3", WAITS,
    ),
    "volatile type of a parameter": (
        "#define word volatile int",
        "__device__ void h(word *p) { int n = 0; while (!*p) n++; *p = n; }", "h(x);",
        "k.cu:2", WAITS,
    ),
    "way back to a function": (
        "#define CALL(p) h(p)", "__device__ void h(int *p) { while (*(volatile int *)p) ; }",
        "CALL(x);", "k.cu:2", WAITS,
    ),
    "way back to a macro": (
        "__device__ void g(int *p) { WAIT(p); }", "#define WAIT(p) while (atomicAdd(p, 0) == 0)",
        "g(x);", "k.cu:2", "may wait for another block",
    ),
    "loop": ("#define LOOP while", f"__device__ int {READY}", "LOOP (!ready(x)) ;", "k.cu:3",
             "LOOP may wait for another block"),
    "loop with a condition": (
        "#define A(c) while (!(c))\n#define UNTIL(c) A(c)", "", "UNTIL(*(volatile int *)x) ;",
        "k.cu:3", "UNTIL may wait for another block",
    ),
    "return": ("", "#define A return\n#define B A", "if (threadIdx.x) B; __syncthreads();",
               "k.cu:4", LEFT),
    "barrier in assembly": (
        '#define MEET asm volatile("bar.sync 0;")', "", "if (threadIdx.x) return; MEET;",
        "k.cu:3", LEFT,
    ),
    "barrier of a group": (
        "#define MEET cooperative_groups::this_thread_block().sync()",
        "#include <cooperative_groups.h>", "if (threadIdx.x) return; MEET;", "k.cu:3", LEFT,
    ),
}  # fmt: skip


def with_header(above: str, body: str) -> str:
    kernel = f"__global__ void k(int *x) {{ {body} x[blockIdx.x] = 1; }}"
    return f'#include "h.cuh"\n{above}\n{kernel}\n'


@pytest.mark.parametrize("kind", MACROS)
def test_what_macros_hide_is_seen(kind: str, tmp_path: Path) -> None:
    header, above, body, place, why = MACROS[kind]
    (tmp_path / "h.cuh").write_text(header + "\n")
    (kernel,) = transform(with_header(above, body), "k.cu", [tmp_path]).kernels
    found = [(str(r.place), r.why) for r in kernel.reasons]
    assert any(at == place and why in words for at, words in found), found


def test_macros_of_two_headers_are_seen(tmp_path: Path) -> None:
    (tmp_path / "g.cuh").write_text("#define B __device__\n")
    (tmp_path / "h.cuh").write_text('#include "g.cuh"\n#define A B\n')
    (kernel,) = transform(with_header(f"A int {READY}", WAIT), "k.cu", [tmp_path]).kernels
    assert any(WAITS in reason.why for reason in kernel.reasons)


@pytest.mark.parametrize("fold", [False, True])
def test_shared_memory_of_a_header_macro_is_seen(fold: bool, tmp_path: Path) -> None:
    """Tiles that use it need a barrier between them, and cannot be folded."""
    (tmp_path / "h.cuh").write_text("#define CELLS __shared__ int cells[32]\n")
    text = with_header("", "CELLS; cells[threadIdx.x] = 1; x[9] = cells[threadIdx.x];")
    made = transform(text, "k.cu", [tmp_path], ElasticOptions(fold=fold))
    (kernel,) = made.kernels
    assert any("work together" in reason.why for reason in kernel.reasons) == fold
    alone = transform(text.replace("CELLS;", "int cells[32];"), "k.cu", [tmp_path])
    assert fold or made.text.count("__syncthreads") > alone.text.count("__syncthreads")


#: By kind: a header, text of the source above the kernel, and its body.
HARMLESS: dict[str, tuple[str, str, str]] = {
    "mark": ("#define DEVICE __device__", "DEVICE int f(int v) { return v + 1; }", "x[0] = f(1);"),
    "marks": (
        "#define DEVICE __device__\n#define INLINE __forceinline__",
        "template <class T> DEVICE INLINE T f(T v) { return v + blockIdx.x; }", "x[0] = f(1);",
    ),
    "mark of a method": (
        "#define DEVICE __device__", "struct S { DEVICE int f() { return blockIdx.x; } };",
        "S s; x[s.f()] = 2;",
    ),
    "mark with the type": (
        "#define HELPER(type) __device__ type", "HELPER(int) f(int v) { return v + 1; }",
        "x[0] = f(1);",
    ),
    "whole head": (
        "#define HEAD(name, ...) __device__ int name(__VA_ARGS__)",
        "HEAD(f, int v) { return v + 1; }", "x[0] = f(1);",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", HARMLESS)
def test_macros_that_hide_nothing_are_accepted(kind: str, tmp_path: Path, nvrtc: Nvrtc) -> None:
    header, above, body = HARMLESS[kind]
    (tmp_path / "h.cuh").write_text(header + "\n")
    made = transform(with_header(above, body), "k.cu", [tmp_path], ElasticOptions(device=True))
    assert [kernel.reasons for kernel in made.kernels] == [()]
    for text in (made.plain, made.text):
        assert nvrtc(text.replace('#include "h.cuh"', header), "compute_80")


def test_functions_of_the_host_are_told_from_others() -> None:
    """Names of a kernel's variables are no calls of them."""
    host = (
        "#define REAL float\n#define API\ntemplate <class A> struct T { T(); int *begin(); };\n"
        "API REAL *f() { cudaDeviceSynchronize(); }\n"
        "unsigned long long g() { cudaDeviceSynchronize(); }\n"
        "template <class A> T<A>::T() { cudaDeviceSynchronize(); }\n"
        "template <class A> int *T<A>::begin() { cudaDeviceSynchronize(); }\n"
        "std::vector<int> h() { cudaDeviceSynchronize(); }\nKERNEL "
        "int f = 1, g = 2, T = 3, begin = 4, h = 5; x[blockIdx.x] = f + g + T + begin + h; }"
    )
    (kernel,) = transform(text_of(host), "k.cu").kernels
    assert kernel.reasons == ()
