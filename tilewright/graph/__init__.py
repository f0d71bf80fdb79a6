"""The tensor IR: what a model computes, with static shapes.

Here belong the closed set of ops (`ops.py`, `scan.py`), nodes, the functions that build them and
text for people (`node.py`), constants that are stored (`constants.py`), views as index algebra
(`views.py`) and the rewriter (`rewrite.py`); the passes are in `passes/`.  What becomes one kernel,
and where a tensor lies, is for `fusion/`.
"""
