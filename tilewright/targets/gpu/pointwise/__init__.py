"""Elementwise kernels, long reductions and sorting by workgroups.

`maps.py` has elementwise kernels, `reductions.py` long reductions, `top_k.py` the smallest elements
of a row in order, and `f16_copy.py` copies as f16.
"""
