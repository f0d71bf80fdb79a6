"""Kernels by one thread with vectors, as in WebAssembly or C: schedules, spaces and loops.

`strategies.py` has a row for each form of kernel/form.py, and collects the candidates.  Each form
has a file with its schedule type, its default, its search space and its lowering.
`microkernel.py` is the register tile of all products, and `spans.py` is shared by kernels without
register tiles.

This package holds what depends on lanes, registers or caches.  What a kernel computes is in
`kernel/`; the instructions of a target are in its own folder (`targets/wasm/`).
"""
