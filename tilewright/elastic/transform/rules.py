"""What a kernel needs to become elastic, and why some cannot.

Input: a kernel of a `CudaSource`.  Output: a `Verdict`: what its tiles need, and reasons to refuse
the kernel, each with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tilewright.elastic.transform import ptx
from tilewright.elastic.transform.flow import LAMBDA, Flow
from tilewright.elastic.transform.module import (
    BARRIERS,
    BLOCK,
    LANES,
    NAMES,
    THREAD,
    CudaSource,
    Definition,
)
from tilewright.elastic.transform.source import SourceLine, inside, is_shared, name_of
from tilewright.elastic.transform.waits import waits

if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True)
class Reason:
    """Why a kernel cannot be made elastic, and the line that says so."""

    place: SourceLine
    why: str

    def __str__(self) -> str:
        return f"{self.place}: {self.why}"


#: Their blocks would look at no budget, and are no tiles of anybody.
LAUNCHES = "it launches kernels, which nobody could ask to leave: launch them from the host"
OBJECTS_WHY = "it has barrier objects in shared memory, which each tile would initialise again"
#: On a GPU a warp that is left in part waits for all of its lanes (docs/decisions/0054).
_LEFT_WHY = (
    "some threads return before the others meet a barrier: let them skip the work instead, and "
    "come to the barrier"
)
#: Words that nobody may mention whose block is a tile.
REFUSED = {
    "this_grid": "it waits for the whole grid or asks for its place there (this_grid)",
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
#: How a cooperative group is asked for the block's number.
GROUP_INDEX = "group_index"
#: The end of a conditional whose begin is elsewhere.
_HALF = re.compile(r"#\s*(?:el|endif)")
#: What is put after a kernel's name.
FORMS = ("_tw", "_elastic", "_slice")
#: Libraries whose functions meet at barriers of the block, or in groups of lanes.
LIBRARY_BARRIERS = frozenset({
    "BlockReduce", "BlockScan", "BlockRadixSort", "BlockLoad", "BlockStore", "BlockExchange",
    "BlockHistogram", "BlockMergeSort", "make_pipeline", "wait_prior",
})  # fmt: skip
#: Functions of CUDA, and casts, by which threads share nothing.
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
    """What a kernel's second form is made of.

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
    """fold: threads of the tile are numbered by the second form, too"""

    def __init__(self, module: CudaSource, fold: bool) -> None:
        self.module, self.fold, self._of = module, fold, module.source.of

    @cached_property
    def identities(self) -> frozenset[str]:
        """Words by which a block, or a thread, knows its place."""
        found = BLOCK | {"%ctaid", "%nctaid", GROUP_INDEX}
        return found | THREAD | {"%tid", "%ntid"} if self.fold else found

    @cached_property
    def barriers(self) -> frozenset[str]:
        """Barriers, and names of the file that wait at one."""
        own = {f.name for f in self.module.functions if list(self.group_syncs(f))}
        own |= {n for n, fs in self.module.named.items() if any(map(self._asm_barriers, fs))}
        return BARRIERS | own | self.module.reaching(BARRIERS | own)

    @cached_property
    def lanes(self) -> frozenset[str]:
        """Functions of lanes, and names of the file that call one."""
        every = {w for words in self.module.words.values() for w in words}
        for kernel in self.module.kernels:
            every |= self.module.words_in(kernel.body)
        wanted = frozenset(w for w in every if LANES.match(w))
        return wanted | self.module.reaching(wanted)

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
        """Names below the body that are wanted, and mean nothing of the function's own."""
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
        """Whether the file has shared memory or barriers where calls do not lead: outside of
        functions, in macros, in operators and constructors."""
        source, skip = self.module.source, frozenset({"function_definition"})
        texts = [m.value for found in self.module.macros.values() for m in found]
        texts += [source.of(odd) for odd in self.module.odd]
        words = ("__shared__", *BARRIERS)
        return any(word in text for text in texts for word in words) or any(
            node.type == "declaration" and is_shared(source, node)
            for node in inside(source.root, skip=skip)
        )

    def _all_known(self, bodies: list[Definition]) -> bool:
        """Whether the bodies call nothing but each other and functions of CUDA that wait for
        nobody."""
        known = self.module.named.keys() | self.module.macros.keys()
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
        """Whether the parser did not understand what is here, or half of a conditional is."""
        half = node.type == "preproc_call" and _HALF.match(self._of(node))
        return node.type == "ERROR" or node.is_missing or bool(half)

    def _broken(self, kernel: Definition, bodies: list[Definition]) -> Iterator[Reason]:
        for function in bodies:
            misread = filter(self._misread, inside(function.whole, tokens=True))
            if (node := next(misread, None)) is not None:
                yield self._reason(node, "the text here is not understood; a conditional (#if) "
                                         "around a part of a statement, perhaps")  # fmt: skip
        head = self.module.source.between(kernel.whole.start_byte, kernel.body.start_byte)
        if "__cluster_dims__" in head:
            yield self._reason(kernel.node, REFUSED["__cluster_dims__"])
        for parameters in kernel.templates:
            for node in parameters.named_children:
                if node.type != "comment" and name_of(node) is None:
                    yield self._reason(node, "a template parameter has no name")

    def _refused(self, bodies: list[Definition]) -> Iterator[Reason]:
        source = self.module.source
        for function in bodies:
            for node in self.assemblies(function):
                for why in ptx.reasons(source, node):
                    yield self._reason(node, why)
            for node, why in waits(self.module, function):
                yield self._reason(node, why)

    def _libraries(self, kernel: Definition, flow: Flow, returns: list[Node]) -> Iterator[Reason]:
        for wanted in (LIBRARY_BARRIERS, LIBRARY_LANES):
            later = self.mentions(kernel, wanted | self.module.reaching(wanted))
            for node in flow.followed(returns, later):
                yield self._reason(node, "some threads return before others work together "
                                         "by functions of a library")  # fmt: skip

    def _not_masked(self, kernel: Definition, returns: tuple[Node, ...]) -> Iterator[Reason]:
        """Returns before functions of lanes must stand where all lanes that are left come by."""
        for node in returns:
            if outer_if(kernel, node) is None:
                yield self._reason(node, "some lanes of a warp return, within a loop or a branch, "
                                         "before others work together")  # fmt: skip

    def _together(self, bodies: list[Definition]) -> Iterator[Reason]:
        """What may need all threads of a tile at once; a reason not to fold them."""
        why = "threads of a tile work together, so one cannot do the work of several"
        together = self.barriers | self.lanes | LIBRARY_BARRIERS | LIBRARY_LANES
        for function in bodies:
            for node in [*self.mentions(function, together), *self.assemblies(function),
                         *self.group_syncs(function)]:  # fmt: skip
                yield self._reason(node, why)
            for node in inside(function.body):
                if node.type == "declaration" and is_shared(self.module.source, node):
                    yield self._reason(node, why)
                if self._of(node) in ("__activemask", "thread_block", "coalesced_threads"):
                    yield self._reason(node, why)


def copy_of(name: str) -> str:
    return f"{name}_tw"


def outer_if(kernel: Definition, node: Node) -> Node | None:
    """The `if` at the top of the kernel that is all there is around a return."""
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
