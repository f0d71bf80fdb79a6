"""Fusion: from tensor ops to tile kernels and the neutral program.

Here belong the choice of what is stored (`fuse.py`, `kernel_splits.py`), where it lies
(`place.py`), the specification of each kernel (`regions.py`, `expressions.py`, `specs.py`), the
steps of loops (`steps.py`), and the program of all plans (`program.py`).  No target is known here,
and nothing is
rewritten: that is for `graph/passes/`.
"""
