"""Benchmarks: commands that measure speed, size and accuracy, by subject; `python -m benchmarks`.

They may import everything of `tilewright` and `lab`, and what they need of tests' helpers.  Wheels
do not have them.  README.md names each with what it measures.
"""
