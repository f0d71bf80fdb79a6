"""Decides what a kernel needs to become elastic, or why it cannot.

Input: a kernel of a `SourceModule`.  Output: a `Verdict`: the needs of its tiles, and reasons to
refuse the kernel, each with its line.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tilewright.elastic.transform import ptx
from tilewright.elastic.transform.cuda_source import Source, SourceLine, inside, is_shared, name_of
from tilewright.elastic.transform.definitions import (
    BARRIERS,
    BLOCK,
    LANES,
    NAMES,
    THREAD,
    Definition,
)
from tilewright.elastic.transform.flow import LAMBDA, Flow
from tilewright.elastic.transform.modules import SourceModule
from tilewright.elastic.transform.spin_loops import asking, is_spin_macro, waits

if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True)
class Reason:
    """Why a kernel cannot be made elastic, and the line that shows it."""

    place: SourceLine
    why: str

    def __str__(self) -> str:
        return f"{self.place}: {self.why}"


#: Launched blocks would check no budget, and are not tiles of the kernel.
LAUNCHES = "it launches kernels, which could not be stopped: launch them from the host"
OBJECTS_WHY = "its barrier objects in shared memory would be initialised again by each tile"
#: On a GPU a warp of which some lanes return waits for all of them (docs/decisions/0054).
_LEFT_WHY = (
    "some threads return before the others reach a barrier: let them skip the work instead, and "
    "reach the barrier too"
)
MISREAD_WHY = "the parser could not read this text; perhaps an #if splits a statement"
#: Words that code in a tile must not mention, with the reasons.
REFUSED = {
    "this_grid": "it waits for the whole grid or reads its position in it (this_grid)",
    "grid_group": "it waits for the whole grid (grid_group)",
    "this_multi_grid": "it waits for several grids (this_multi_grid)",
    "multi_grid_group": "it waits for several grids (multi_grid_group)",
    "this_cluster": "it uses a cluster of blocks",
    "cluster_group": "it uses a cluster of blocks",
    "__cluster_dims__": "it uses a cluster of blocks",
    "__clusterIdx": "it uses a cluster of blocks",
    "cudaDeviceSynchronize": "it waits for kernels that it launched",
    "cudaLaunchDevice": LAUNCHES,
    "cudaLaunchDeviceV2": LAUNCHES,
    "cudaGetParameterBuffer": LAUNCHES,
    "cudaGetParameterBufferV2": LAUNCHES,
    "cudaLaunchKernel": LAUNCHES,
    "cudaLaunchKernelEx": LAUNCHES,
    "cudaLaunchKernelExC": LAUNCHES,
    "cudaGraphLaunch": "it launches graphs",
    "cudaGridDependencySynchronize": "it waits for another kernel",
    "cudaTriggerProgrammaticLaunchCompletion": "it lets another kernel begin",
    "pipeline_shared_state": OBJECTS_WHY,
}
#: The member by which a cooperative group gives the block's number.
GROUP_INDEX = "group_index"
#: The end of a preprocessor conditional that begins elsewhere.
_HALF = re.compile(r"#\s*(?:el|endif)")
#: A group's barrier in the text of a macro; the group may be the block.
_SYNC = re.compile(r"\bsync\s*\(")
#: Suffixes of the forms' names.
FORMS = ("_tw", "_elastic", "_slice")
#: Libraries whose functions use barriers of the block, or groups of lanes.
LIBRARY_BARRIERS = frozenset({
    "BlockReduce", "BlockScan", "BlockRadixSort", "BlockLoad", "BlockStore", "BlockExchange",
    "BlockHistogram", "BlockMergeSort", "make_pipeline", "wait_prior",
})  # fmt: skip
#: Functions of CUDA, and casts, that do not communicate between threads.
ALONE = re.compile(
    r"atomic\w+|make_\w+|__(?!sync)\w+|(?:static|reinterpret|const)_cast|u?(?:int|long)|float|double"
    r"|(?:f|ll|l)?(?:abs|min|max)f?|(?:r|c)?sqrtf?|r?cbrtf?|(?:exp|log)(?:2|10|1p|m1|b)?f?|pow[fi]?"
    r"|a?(?:sin|cos|tan)(?:h|pi)?f?|atan2f?|sincosf?|erfc?f?|(?:l|t)gammaf?|fmaf?|f?modf?|fdividef?"
    r"|(?:ceil|floor|trunc|round|rint|nearbyint|remainder|hypot|copysign|fdim|ldexp|frexp)f?"
    r"|is(?:nan|inf|finite)|signbit|clock(?:64)?|tex[123]D\w*|printf|assert"
)
LIBRARY_LANES = frozenset({"tiled_partition", "thread_block_tile", "WarpReduce", "WarpScan"})


@dataclass(frozen=True)
class Verdict:
    """What a kernel's elastic forms need.

    live:    a mask is kept of the lanes of a warp that have not returned
    returns: returns that only some threads take before lanes work together
    together: threads of a tile may share memory or wait for each other
    """

    function: Definition = field(repr=False)
    live: bool
    returns: tuple[Node, ...] = field(repr=False)
    reasons: tuple[Reason, ...]
    together: bool


class Rulebook:
    """The rules for one source.

    fold: the elastic form also numbers the threads of the tile
    books: of the file and of all headers that were found, this one among them
    """

    def __init__(self, module: SourceModule, fold: bool, books: Sequence[Rulebook]) -> None:
        self.module, self.fold, self._of = module, fold, module.source.of
        self._books = books

    @cached_property
    def identities(self) -> frozenset[str]:
        """Words by which code reads its block's, or thread's, number."""
        found = BLOCK | {"%ctaid", "%nctaid", GROUP_INDEX}
        return found | THREAD | {"%tid", "%ntid"} if self.fold else found

    @cached_property
    def barriers(self) -> frozenset[str]:
        """Barriers, and names that wait at one."""
        return self._with_users(BARRIERS, *(book.own_barriers for book in self._books))

    @cached_property
    def lanes(self) -> frozenset[str]:
        """Lane functions, and names that call one."""
        return self._with_users(*(book.own_lanes for book in self._books))

    @cached_property
    def asked(self) -> frozenset[str]:
        """Names of code that reads memory which other threads write."""
        return self._with_users(*(book.own_asked for book in self._books))

    def _with_users(self, *wanted: frozenset[str]) -> frozenset[str]:
        """These names, and names in all sources that mention one of them, transitively."""
        names, more = frozenset[str](), frozenset[str]().union(*wanted)
        while more != names:
            names = more
            more = names.union(*(book.module.reaching(names) for book in self._books))
        return names

    @cached_property
    def own_barriers(self) -> frozenset[str]:
        """Names of this source that wait at a barrier which is not called by its name."""
        own = {f.name for f in self.module.own.functions if list(self.group_syncs(f))}
        own |= {n for n, fs in self.module.named.items() if any(map(self._asm_barriers, fs))}
        for name, macros in self.module.own.macros.items():
            if any(ptx.BARRIER.search(m.value) or _SYNC.search(m.value) for m in macros):
                own.add(name)
        return frozenset(own)

    @cached_property
    def own_lanes(self) -> frozenset[str]:
        """Lane functions that this source mentions."""
        every = {w for words in self.module.words.values() for w in words}
        for kernel in self.module.own.kernels:
            every |= self.module.words_in(kernel.body)
        return frozenset(w for w in every if LANES.match(w))

    @cached_property
    def own_asked(self) -> frozenset[str]:
        """As `asked`, by this source's text alone."""
        return asking(self.module)

    def group_syncs(self, function: Definition) -> Iterator[Node]:
        """Calls of a cooperative group's barrier where the group is the block."""
        whole = function.whole
        text = self.module.source.between(whole.start_byte, whole.end_byte)
        for call in inside(function.body):
            if call.type == "call_expression":
                group = self._synced(call)
                if group is not None and self._is_block(group, text):
                    yield call

    def _synced(self, call: Node) -> str | None:
        """The group that a call waits for: of `g.sync()` or `cg::sync(g)`."""
        callee, given = (call.child_by_field_name(f) for f in ("function", "arguments"))
        name = name_of(callee)
        if callee is None or given is None or name is None or self._of(name) != "sync":
            return None
        if callee.type == "field_expression":
            argument = callee.child_by_field_name("argument")
            return self._of(argument) if argument is not None else None
        return self._of(given.named_children[0]) if given.named_children else None

    @staticmethod
    def _is_block(group: str, text: str) -> bool:
        if group.endswith("this_thread_block()"):
            return True
        name = re.escape(group)
        return bool(
            re.search(rf"\bthread_block\s*&?\s*{name}\b", text)
            or re.search(rf"\bauto\s*&?\s*{name}\s*=\s*[\w:]*this_thread_block\s*\(\s*\)", text)
        )

    def assemblies(self, function: Definition) -> Iterator[Node]:
        return (n for n in inside(function.body) if n.type == "gnu_asm_expression")

    def _asm_barriers(self, function: Definition) -> bool:
        source = self.module.source
        return any(ptx.BARRIER.search(ptx.code_of(source, a)) for a in self.assemblies(function))

    def mentions(self, function: Definition, wanted: frozenset[str]) -> list[Node]:
        """Wanted names below the body that are not the function's own variables."""
        names = wanted - self.module.locals_of(function)
        return [n for n in inside(function.body) if n.type in NAMES and self._of(n) in names]

    def verdict(self, kernel: Definition) -> Verdict:
        bodies = self.module.bodies(kernel)
        flow = Flow(self.module, kernel)
        returns = flow.returns()
        meets = self.mentions(kernel, self.barriers) + list(self.group_syncs(kernel))
        meets += [a for a in self.assemblies(kernel)
                  if ptx.BARRIER.search(ptx.code_of(self.module.source, a))]  # fmt: skip
        left = flow.followed(returns, meets)
        lanes = self.mentions(kernel, self.lanes)
        early = tuple(flow.followed(returns, lanes))
        found = [*self._broken(kernel, bodies), *self._refused(bodies)]
        found += self._spinning(self.module.group.behind(self.module.calls_in(kernel)))
        found += (self._reason(node, _LEFT_WHY) for node in left)
        found += self._libraries(kernel, flow, returns)
        if early:
            found += self._not_masked(kernel, early)
        reasons = [*self._together(bodies)]
        if self.fold:
            found += reasons
        together = bool(reasons) or self._hidden or not self._all_known(bodies)
        return Verdict(kernel, bool(early), early, tuple(dict.fromkeys(found)), together)

    @cached_property
    def _hidden(self) -> bool:
        """True if the file has shared memory or barriers that calls do not lead to: outside of
        functions, in macros, in operators and constructors."""
        source, skip = self.module.source, frozenset({"function_definition"})
        texts = [m.value for found in self.module.own.macros.values() for m in found]
        texts += [source.of(odd) for odd in self.module.own.odd]
        words = ("__shared__", *BARRIERS)
        return any(word in text for text in texts for word in words) or any(
            node.type == "declaration" and is_shared(source, node)
            for node in inside(source.root, skip=skip)
        )

    def _all_known(self, bodies: list[Definition]) -> bool:
        """True if the bodies call only each other and CUDA functions that wait for nothing."""
        known = self.module.named.keys() | self.module.own.macros.keys()
        for function in bodies:
            for call in inside(function.body):
                if call.type == "call_expression":
                    callee = call.child_by_field_name("function")
                    name = name_of(callee) or callee
                    word = self._of(name) if name is not None else ""
                    if word not in known and not ALONE.fullmatch(word):
                        return False
        return True

    def _reason(self, node: Node, why: str) -> Reason:
        return Reason(self.module.source.place(node), why)

    def _misread(self, node: Node) -> bool:
        """True if the parser did not understand this text, or if it has half of a conditional."""
        half = node.type == "preproc_call" and _HALF.match(self._of(node))
        return node.type == "ERROR" or node.is_missing or bool(half)

    def _is_marking(self, function: Definition, node: Node) -> bool:
        """True if only macros before a device function's type are unknown, and the rest was
        parsed."""
        return (
            not function.kernel
            and node.end_byte <= function.declarator.start_byte
            and re.fullmatch(r"\w[\w\s]*", self._of(node)) is not None
            and self.module.marks.is_marked(function.node)
        )

    def _broken(self, kernel: Definition, bodies: list[Definition]) -> Iterator[Reason]:
        for function in bodies:
            misread = (
                n for n in inside(function.whole, tokens=True)
                if self._misread(n) and not self._is_marking(function, n)
            )  # fmt: skip
            if (node := next(misread, None)) is not None:
                yield self._reason(node, MISREAD_WHY)
        head = self.module.source.between(kernel.whole.start_byte, kernel.body.start_byte)
        if "__cluster_dims__" in head:
            yield self._reason(kernel.node, REFUSED["__cluster_dims__"])
        label = kernel.declarator.child_by_field_name("declarator")
        if label is not None and not re.match(r"\w+\s*(<|$)", self._of(label)):
            why = "its name has a scope or attributes, which the elastic forms cannot repeat"
            yield self._reason(label, why)
        for parameters in kernel.templates:
            for node in parameters.named_children:
                if node.type != "comment" and name_of(node) is None:
                    yield self._reason(node, "a template parameter has no name")

    def of_header(self, names: Collection[str], function: Definition | None) -> Iterator[Reason]:
        """Why no kernel may use a function, or macros of these names, of a header."""
        if function is None:
            yield from self._spinning(names)
            return
        yield from self._refused([function])
        if self.fold:
            yield from self._together([function])

    def _refused(self, bodies: list[Definition]) -> Iterator[Reason]:
        """Assembly that no tile may contain, and loops that wait for another block."""
        source = self.module.source
        for function in bodies:
            for node in self.assemblies(function):
                for why in ptx.reasons(source, node):
                    yield self._reason(node, why)
            for node, why in waits(self.module, function, self.asked):
                yield self._reason(node, why)

    def _spinning(self, names: Collection[str]) -> Iterator[Reason]:
        """Macros of these names with a loop that waits for another block."""
        for name in sorted(names):
            for macro in self.module.own.macros.get(name, ()):
                if is_spin_macro(macro, self.asked):
                    why = f"the macro {name} has a loop that may wait for another block"
                    yield self._reason(macro.node, why)

    def _libraries(self, kernel: Definition, flow: Flow, returns: list[Node]) -> Iterator[Reason]:
        for wanted in (LIBRARY_BARRIERS, LIBRARY_LANES):
            later = self.mentions(kernel, self._with_users(wanted))
            for node in flow.followed(returns, later):
                yield self._reason(node, "some threads return before others call a library "
                                         "function that needs them all")  # fmt: skip

    def _not_masked(self, kernel: Definition, returns: tuple[Node, ...]) -> Iterator[Reason]:
        """Returns before lane functions that not all remaining lanes pass at the same place."""
        for node in returns:
            if outer_if(kernel, node) is None:
                yield self._reason(node, "some lanes of a warp return in a loop or a branch, "
                                         "before others exchange values")  # fmt: skip

    def _together(self, bodies: list[Definition]) -> Iterator[Reason]:
        """Code that may need all threads of a tile at once; a reason not to fold them."""
        why = "the threads of a tile work together, so one thread cannot do the work of several"
        together = self.barriers | self.lanes | LIBRARY_BARRIERS | LIBRARY_LANES
        together |= self._with_users(frozenset({"__shared__"}))
        for function in bodies:
            for node in [*self.mentions(function, together), *self.assemblies(function),
                         *self.group_syncs(function)]:  # fmt: skip
                yield self._reason(node, why)
            for node in inside(function.body):
                if node.type == "declaration" and is_shared(self.module.source, node):
                    yield self._reason(node, why)
                if self._of(node) in ("__activemask", "thread_block", "coalesced_threads"):
                    yield self._reason(node, why)


def rulebooks(modules: Iterable[SourceModule], fold: bool) -> dict[Source, Rulebook]:
    """The rules for a file and its headers, which use each other's names."""
    books: list[Rulebook] = []
    books += [Rulebook(each, fold, books) for each in modules]
    return {book.module.source: book for book in books}


def copy_of(name: str) -> str:
    return f"{name}_tw"


def outer_if(kernel: Definition, node: Node) -> Node | None:
    """The `if` at the top level of the kernel that alone encloses a return."""
    parent = node.parent
    if parent is not None and parent.type == "compound_statement":
        if parent.named_children[-1].id != node.id:
            return None
        parent = parent.parent
    if parent is None or parent.type != "if_statement" or parent.parent is None:
        return None
    condition = parent.child_by_field_name("condition")
    plain = (
        parent.parent.id == kernel.body.id
        and parent.child_by_field_name("alternative") is None
        and condition is not None
        and condition.child_by_field_name("initializer") is None
        and not any(n.type == "declaration" for n in inside(condition, skip=LAMBDA))
    )
    return parent if plain else None
