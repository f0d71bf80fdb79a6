"""Fusion: from tensor ops to tile kernels and the neutral program.

Here belong the choice of what is stored (`fuse.py`), where it lies (`regions.py`), the
specification of each kernel (`expressions.py`, `specs.py`), the steps of loops (`steps.py`), and
the program of all plans (`program.py`).  No target is known here, and nothing is rewritten: that is
for `graph/passes/`.
"""
