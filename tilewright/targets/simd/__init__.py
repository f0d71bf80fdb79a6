"""One thread with vectors, as in WebAssembly or C: forms → schedules, spaces and loops.

`strategies.py` has a row per form of kernel/form.py; each form has a file with its type of
schedule, the default, what its space varies, and its lowering.  `microkernel.py` is the register
tile of all products, `spans.py` what kernels without one share, `space.py` puts candidates
together.

Here belongs what depends on lanes, registers or caches.  What a kernel computes is in `kernel/`,
the instructions of a target in its own folder (`targets/wasm/`).
"""
