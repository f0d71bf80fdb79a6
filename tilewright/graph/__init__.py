"""The tensor IR: what a model computes, with static shapes.

Here belong the closed set of ops (`ops.py`, `scan.py`), nodes and the functions that build them
(`node.py`), what is equal (`constants.py`), views as index algebra (`views.py`), the rewriter
(`rewrite.py`) and text for people (`printer.py`); the passes are in `passes/`.  What becomes one
kernel, and where a tensor lies, is for `fusion/`.
"""
