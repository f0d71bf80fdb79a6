"""Fusion: from tensor ops to tile kernels and the neutral program.

The package chooses the tensors that are stored (`fuse.py`) and their memory (`regions.py`), and
makes the specification of each kernel (`expressions.py`, `kernel_specs.py`), the steps of loops
(`kernel_steps.py`), and the program of all plans (`program.py`).  Long reductions of few rows are
split into parts (`split_reductions.py`), and operands copied as f16 (`f16_operands.py`).  It knows
no target and rewrites nothing; `graph/passes/` does that.
"""
