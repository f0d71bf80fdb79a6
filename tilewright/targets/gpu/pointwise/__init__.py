"""Elementwise kernels, long reductions and sorting by workgroups."""
