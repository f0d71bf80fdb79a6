"""The tensor IR: what a model computes, with static shapes.

The package has the closed set of ops (`ops.py`, `scan.py`), nodes, the functions that build and
print them (`node.py`), stored constants (`constants.py`), views as index algebra (`views.py`),
sizes that depend on a run-time extent (`extent_tracing.py`), rounding to 16 bits (`rounding.py`)
and the rewriter (`rewrite.py`).  The passes are in `passes/`.  `fusion/` decides what becomes one
kernel, and where tensors are stored.
"""
