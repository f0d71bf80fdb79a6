"""Definitions that all folders share: element types, scalar functions, memory layout, typed errors.

These are tables and plain records: `dtypes.py`, `scalars.py` (with its NumPy twin), the words of
memory (`abi.py`), a target's part of a bundle (`sections.py`), errors (`errors.py`).  Nothing here
computes a stage of the pipeline or imports another folder, and only the NumPy twin needs more than
the standard library.
"""
