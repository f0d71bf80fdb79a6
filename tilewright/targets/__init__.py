"""Targets: how kernels run on one kind of machine, from the first choice of a schedule to its code.

Here: `schedule.py`, what all schedules are; `lite.py`, nnJIT's space of matrix products by
formulas, with its ranges as data per kind of target; `classes.py`, the classes of devices; `simd/`,
forms of kernels as loops for one thread with vectors; `wasm/`, such loops as WebAssembly.

Not here: what a kernel computes and which form it has (`kernel/`), what may be measured and when
(`tuning/`), anything that a host does.  Only the standard library is needed.
"""
