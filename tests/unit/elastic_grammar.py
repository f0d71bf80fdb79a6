"""CUDA sources by a grammar: ways to ask for the block's number, and names with other meanings.

Input: a seed.  Output: the text of a source with one kernel `k_SEED(int *x, int n)`.  All names end
in the seed, so many sources can be compiled together.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

#: Names that forms, rules or compilers use themselves.
NAMES = ("where", "tile", "block", "first", "live", "at", "index", "get", "S", "number", "advance",
         "grid", "place", "value", "x1", "step", "size", "rank", "leads", "worker")  # fmt: skip
BASES = ("blockIdx.x", "(int)blockIdx.x", "int(blockIdx.x)", "blockIdx.x * 1", "(blockIdx).x",
         "(&blockIdx)->x", "(true ? blockIdx : blockIdx).x", "(0, blockIdx.x)",
         "blockIdx.x + 0 * gridDim.x", "blockIdx . x", "blockIdx/* . */.x", "blockIdx\n.x",
         "(int)(blockIdx.x + gridDim.y - 1)", "uint3(blockIdx).x", "uint3{blockIdx}.x")  # fmt: skip


@dataclass
class Writer:
    """before: text at namespace scope;  body: statements of the kernel before its work"""

    seed: int
    rng: random.Random = field(init=False)
    before: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def name(self) -> str:
        free = [n for n in NAMES if n not in self.used] or [f"n{len(self.used)}"]
        found = self.rng.choice(free)
        self.used.add(found)
        return f"{found}_{self.seed}"


@dataclass(frozen=True)
class Way:
    """Text at namespace scope, of an expression, and of the kernel's body, with the names A, B, C
    and the inner expression E."""

    before: str
    use: str
    body: str = ""

    def write(self, w: Writer, inner: str) -> str:
        """The expression; the rest goes to the writer."""
        every = self.before + self.use + self.body
        names = {letter: w.name() for letter in "ABC" if f"@{letter}" in every}

        def filled(text: str) -> str:
            for letter, name in names.items():
                text = text.replace(f"@{letter}", name)
            return text.replace("@E", inner)

        if self.before:
            w.before.append(filled(self.before))
        if self.body:
            w.body.append(filled(self.body))
        return filled(self.use)


D = "__device__"
#: Ways that read an inner expression and give it back, by kind.
WAYS: dict[str, Way] = {
    "function": Way(f"{D} int @A() {{ return @E; }}", "@A()"),
    "inline": Way(f"static {D} __forceinline__ int @A(void) {{ return @E; }}", "@A( )"),
    "comment in a call": Way(f"{D} int @A() {{ return @E; }}", "@A(/* nothing */)"),
    "parameters": Way(f"{D} int @A(int v, int w = 2) {{ return @E + v * w; }}", "@A(0)"),
    "in brackets": Way(f"{D} int @A() {{ return @E; }}", "(@A)()"),
    "global": Way(f"{D} int @A() {{ return @E; }}", "::@A()"),
    "address": Way(f"{D} int @A() {{ return @E; }}", "(&@A)()"),
    "overloads": Way(
        f"{D} int @A(float v) {{ return v; }}\n{D} int @A(int v) {{ return @E + v; }}", "@A(0)"
    ),
    "declared": Way(f"{D} int @A();\n{D} int @B() {{ return @A(); }}\n"
                        f"{D} int @A() {{ return @E; }}", "@B()"),
    "template": Way(f"template <class T> {D} T @A(T v) {{ return v + @E; }}", "@A<int>(0)"),
    "deduced": Way(f"template <class T> {D} T @A(T v) {{ return v + @E; }}", "@A(0)"),
    "number": Way(f"template <int N> {D} int @A() {{ return @E + N; }}", "@A<0>()"),
    "specialised": Way(
        f"template <int N> {D} int @A() {{ return 7; }}\n"
        f"template <> {D} int @A<1>() {{ return @E; }}", "@A<1>()"),
    "pack": Way(f"template <class... T> {D} int @A(T... v) {{ return @E + sizeof...(v); }}",
                    "@A()"),
    "namespace": Way(f"namespace @A {{ {D} int @B() {{ return @E; }} }}", "@A::@B()"),
    "nested": Way(f"namespace @A {{ namespace @C {{ {D} int @B() {{ return @E; }} }} }}",
                      "@A::@C::@B()"),
    "using": Way(f"namespace @A {{ {D} int @B() {{ return @E; }} }}\nusing @A::@B;", "@B()"),
    "using inside": Way(f"namespace @A {{ {D} int @B() {{ return @E; }} }}", "@B()",
                            "using @A::@B;"),
    "directive": Way(f"namespace @A {{ {D} int @B() {{ return @E; }} }}", "@B()",
                         "using namespace @A;"),
    "alias": Way(f"namespace @A {{ {D} int @B() {{ return @E; }} }}\nnamespace @C = @A;",
                     "@C::@B()"),
    "method": Way(f"struct @A {{ {D} int @B() const {{ return @E; }} }};", "@A().@B()"),
    "field": Way(f"struct @A {{ int v; {D} int @B() const {{ return v + @E; }} }};",
                     "@A{0}.@B()"),
    "static method": Way(f"struct @A {{ static {D} int @B() {{ return @E; }} }};", "@A::@B()"),
    "method outside": Way(f"struct @A {{ {D} int @B(); }};\n{D} int @A::@B() {{ return @E; }}",
                              "@A().@B()"),
    "method of a method": Way(
        f"struct @A {{ {D} int @C() {{ return @B(); }} {D} int @B() {{ return @E; }} }};",
        "@A().@C()"),
    "template method": Way(
        f"template <class T> struct @A {{ {D} T @B(T v) {{ return v + @E; }} }};",
        "@A<int>().@B(0)"),
    "base": Way(f"struct @A {{ {D} int @B() {{ return @E; }} }};\nstruct @C : @A {{}};",
                    "@C().@B()"),
    "virtual": Way(f"struct @A {{ {D} virtual int @B() {{ return @E; }} }};", "@A().@B()"),
    "constructor": Way(f"struct @A {{ int b; {D} @A() : b(@E) {{}} }};", "@A().b"),
    "constructor's body": Way(f"struct @A {{ int b; {D} @A() {{ b = @E; }} }};", "@A().b"),
    "constructor outside": Way(
        f"struct @A {{ int b; {D} @A(); }};\n{D} @A::@A() : b(@E) {{}}", "@A().b"),
    "constructor of a base": Way(
        f"struct @A {{ int b; {D} @A(int v) : b(v) {{}} }};\n"
        f"struct @B : @A {{ {D} @B() : @A(@E) {{}} }};", "@B().b"),
    "member's value": Way("struct @A { int b = @E; };", "@A().b"),
    "member's value behind a name": Way("struct @A { int b = @E; };\nusing @B = @A;", "@B().b"),
    "member of a member": Way("struct @A { int b = @E; };\nstruct @B { @A c; };", "@B().c.b"),
    "in a template": Way(
        "template <class T> struct @A { T b = @E; };\ntypedef @A<int> @B;", "@B().b"),
    "called": Way(f"struct @A {{ {D} int operator()() const {{ return @E; }} }};", "@A()()"),
    "operator": Way(
        f"struct @A {{}};\n{D} int operator+(@A, int v) {{ return @E + v; }}", "(@A() + 0)"),
    "literal": Way(f'{D} int operator""_@A(unsigned long long v) {{ return @E + v; }}', "0_@A"),
    "literal of a text": Way(
        f'{D} int operator""_@A(const char *, size_t n) {{ return @E + n; }}', '""_@A'),
    "conversion": Way(f"struct @A {{ {D} operator int() const {{ return @E; }} }};",
                          "int(@A())"),
    "destructor": Way(f"struct @A {{ int *to; {D} ~@A() {{ *to = @E; }} }};", "@B",
                          "int @B = 0;\n  { @A @C{&@B}; }"),
    "default argument": Way(f"{D} int @A(int b = @E) {{ return b; }}", "@A()"),
    "default of a method": Way(
        f"struct @A {{ {D} int @B(int b = @E) {{ return b; }} }};", "@A().@B()"),
    "object": Way(f"{D} int @A() {{ return @E; }}\n#define @B @A()", "@B"),
    "macro": Way("#define @A (@E)", "@A"),
    "macro with brackets": Way("#define @A() (@E)", "@A()"),
    "macro with a parameter": Way("#define @A(v) ((v) + @E)", "@A(0)"),
    "macro's name alone": Way(f"{D} int @A() {{ return @E; }}\n#define @B @A", "@B()"),
    "macro of a macro": Way("#define @A (@E)\n#define @B(v) (@A + (v))", "@B(0)"),
    "macro that calls": Way(f"{D} int @A(int v) {{ return @E + v; }}\n#define @B(v) @A(v)",
                                "@B(0)"),
    "macro that calls more": Way(
        f"{D} int @A(int v) {{ return @E + v; }}\n#define @B(v) @A(0 + (v))", "@B(0)"),
    "macro that gives": Way("#define @A(v) (v)", "@A(@E)"),
    "macro of any": Way("#define @A(...) (__VA_ARGS__)", "@A(@E)"),
    "pasted": Way(f"{D} int @A() {{ return @E; }}\n#define @B(a) @A##a()", "@B()"),
    "pasted call": Way(
        f"{D} int @Azz() {{ return @E; }}\n#define @B(a, b) a##b()", "@B(@A, zz)"),
    "pasted word": Way("#define @A(a) (block##a.x)", "@A(Idx)"),
    "pasted words": Way("#define @A(a, b) a##b", "@A(block, Idx).x"),
    "pasted twice": Way("#define @A(a, b) a##b\n#define @B(a, b) @A(a, b)",
                            "@B(block, Idx).x"),
    "digraph": Way("%:define @A (@E)", "@A"),
    "continued": Way("#define @A \\\n  (@E)", "@A"),
    "split word": Way("", "block\\\nIdx.x"),
    "by its number": Way("", "block\\u0049dx.x"),
    "redefined": Way("#define @A 5\n#undef @A\n#define @A (@E)", "@A"),
    "undefined": Way(f"#define @B (@E)\n{D} int @A() {{ return @B; }}\n#undef @B", "@A()"),
    "one of two": Way("#ifdef NEVER\n#define @A 5\n#else\n#define @A (@E)\n#endif", "@A"),
    "unless": Way("#ifndef @A\n#define @A (@E)\n#endif", "@A"),
    "in the body": Way("", "@A", "#define @A (@E)\n"),
    "lambda": Way("", "@A()", "auto @A = [=]() { return (int)(@E); };"),
    "lambda by reference": Way("", "@A(0)", "auto @A = [&](int v) { return v + (int)(@E); };"),
    "lambda of nothing": Way("", "@A()", "auto @A = [] { return (int)(@E); };"),
    "lambda of a value": Way("", "@A()", "auto @A = [v = (int)(@E)] { return v; };"),
    "lambda outside": Way(
        f"static auto @A = [] {D} () {{ return (int)(@E); }};", "@A()"),
    "lambda given": Way(f"template <class F> {D} int @A(F f) {{ return f(); }}",
                            "@A([=] { return (int)(@E); })"),
    "local class": Way("", "@A().b()", f"struct @A {{ {D} int b() {{ return @E; }} }};"),
    "local member": Way("", "@A().b", "struct @A { int b = @E; };"),
    "pointer": Way(f"{D} int @A() {{ return @E; }}", "@B()", "int (*@B)() = @A;"),
    "pointer by auto": Way(f"{D} int @A() {{ return @E; }}", "(*@B)()", "auto @B = &@A;"),
    "function given": Way(f"{D} int @A() {{ return @E; }}\n"
                              f"{D} int @B(int (*f)()) {{ return f(); }}", "@B(@A)"),
    "function as an argument": Way(
        f"{D} int @A() {{ return @E; }}\ntemplate <int (*F)()> {D} int @B() {{ return F(); }}",
        "@B<@A>()"),
    "declared inside": Way(f"{D} int @A() {{ return @E; }}", "@A()", "int @A();"),
    "reference": Way("", "@A.x", "const auto &@A = blockIdx;"),
    "copy": Way("", "@A.x", "const uint3 @A = blockIdx;"),
    "braces": Way("", "@A.x", "const uint3 @A{blockIdx};"),
    "brackets": Way("", "@A.x", "const uint3 @A(blockIdx);"),
    "bound": Way("", "@A", "auto [@A, @B, @C] = uint3(blockIdx);"),
    "type": Way("", "@A.x", "decltype(blockIdx) @A = blockIdx;"),
    "size": Way("", "(@E + sizeof(blockIdx) - 12)"),
    "given whole": Way(f"{D} int @A(uint3 v) {{ return v.x; }}", "@A(blockIdx)"),
    "given by reference": Way(f"{D} int @A(const uint3 &v) {{ return v.x; }}", "@A(blockIdx)"),
    "variable": Way("", "@A", "int @A = @E;"),
    "variable in brackets": Way("", "@A", "int @A(@E);"),
    "recursion": Way(f"{D} int @A(int n) {{ return n ? @A(n - 1) : int(@E); }}", "@A(2)"),
    "returned by return": Way(f"{D} auto @A() -> int {{ return @E; }}", "@A()"),
    "friend": Way(f"struct @A {{ friend {D} int @B(@A) {{ return @E; }} }};", "@B(@A())"),
    "condition in a function": Way(
        f"{D} int @A() {{\n#ifdef NEVER\n  return 1;\n#else\n  return @E;\n#endif\n}}", "@A()"),
    "condition in an expression": Way(
        f"{D} int @A() {{\n  return 0\n#ifndef NEVER\n  + @E\n#endif\n  ;\n}}", "@A()"),
    "line": Way("", "(@E + 0 * __LINE__)"),
    "name": Way("", "(@E + 0 * sizeof(__func__))"),
    "default namespace": Way(f"namespace {{ {D} int @A() {{ return @E; }} }}", "@A()"),
    "linkage": Way(f'extern "C" {D} int @A() {{ return @E; }}', "@A()"),
    "linkage of several": Way(f'extern "C" {{\n{D} int @A() {{ return @E; }}\n}}', "@A()"),
    "typedef": Way(f"typedef struct {{ {D} int b() {{ return @E; }} }} @A;", "@A().b()"),
    "marked by a macro": Way(f"#define @B {D}\n@B int @A() {{ return @E; }}", "@A()"),
    "made by a macro": Way(f"#define @B(n) {D} int n() {{ return @E; }}\n@B(@A)", "@A()"),
    "string": Way("", '(@E + (int)sizeof("blockIdx.x") - 11)'),
    "raw string": Way("", '(@E + (int)sizeof(R"a(blockIdx.x")a") - 12)'),
}  # fmt: skip
#: Text about a name that means something else: it changes nothing.
SHADOWS: tuple[str, ...] = (
    "{ int @A = 3; x[i % n] += @A - 3; }",
    "for (int @A = 0; @A < 0; @A++) x[0] = @A;",
    "{ auto l = [=](int @A) { return @A; }; x[i % n] += l(0); }",
    "{ struct L { int @A; } l{0}; x[i % n] += l.@A; }",
    "if (int @A = 0) x[0] = @A;",
    "{ enum { @A = 0 }; x[i % n] += @A; }",
    "{ auto l = [](int v) { return v; }; x[i % n] += l(0); }",
    "@A: if (n < 0) goto @A;",
)
OUTER: tuple[str, ...] = (
    "struct O@S { int @A; };",
    f"{D} int o@S(int @A) {{ return @A; }}",
    "namespace o@S { struct @A {}; }",
    f"namespace o@S {{ {D} int @A(float v) {{ return 3; }} }}",
    "void h@S() { int @A = 0; (void)@A; }",
    "#define O@S(@A) (@A + 1)",
    "template <int @A> struct O@S {};",
    "enum class O@S { @A };",
)
#: Words that forms and compilers use: defined for nothing that the source needs.
MACROS: tuple[str, ...] = (
    "tile 16", "block 8", "grid 3", "first 1", "last 2", "each", "live", "advance x", "leads 0",
    "size 4", "done", "thread", "threads", "number", "min(a, b) ((a) < (b) ? (a) : (b))",
    "Tile int", "Turn 3", "TileRange int", "Worker", "tilewright std", "tw_tile 3", "tw_at",
    "tw_block 1", "unsigned signed", "const", "if while", "for while", "return", "__syncthreads()",
    "volatile", "atomicAdd(a, b)", "blockIdx threadIdx", "__shared__", "int long", "break",
)  # fmt: skip


def source(seed: int) -> str:
    w = Writer(seed)
    rng = w.rng
    inner = rng.choice(BASES)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        # what the body declares is not known outside of it
        ways = [way for way in WAYS.values() if not (w.body and "@E" in way.before)]
        inner = rng.choice(ways).write(w, inner)
    used = [f"{name}_{seed}" for name in sorted(w.used)] or [f"where_{seed}"]

    def named(text: str) -> str:
        return text.replace("@A", rng.choice(used)).replace("@S", f"_{seed}")

    shadows = [named(rng.choice(SHADOWS)) for _ in range(rng.choice((0, 0, 0, 1)))]
    if rng.random() < 0.15:
        w.before.insert(rng.randrange(len(w.before) + 1), named(rng.choice(OUTER)))
    macro = rng.choice(MACROS) if rng.random() < 0.1 else ""
    lines = [f"#define {macro}"] if macro else []
    lines += w.before
    lines.append(f"__global__ void k_{seed}(int *x, int n) {{")
    lines += [f"  {text}" for text in w.body]
    lines.append(f"  int i = threadIdx.x + blockDim.x * ({inner});")
    lines += [f"  {text}" for text in shadows]
    lines.append("  if (i >= 0 && i < n) x[i] += i + 1;\n}")
    if macro:
        word = macro.partition("(")[0].split()[0]
        lines.append(f"#undef {word}")
    return "\n".join(lines) + "\n"
