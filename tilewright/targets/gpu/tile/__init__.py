"""Tile operands: how they are staged in shared memory, and the address of each element.

`staging.py` copies operands to shared memory, also operands of few bits.  `addressing.py` has the
addresses of rows, columns and sums.
"""
