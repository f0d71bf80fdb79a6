"""What every folder shares: element types, scalar functions, the memory layout, typed errors.

Here belong tables and plain records that both sides of a contract read: `dtypes.py`, `scalars.py`
(with its NumPy twin), the words of memory (`abi.py`), a target's part of a bundle
(`sections.py`), errors (`errors.py`).  Nothing here computes a stage of the pipeline or imports
another folder, and only the NumPy twin needs more than the standard library.
"""
