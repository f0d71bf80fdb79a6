"""A product's tile: its position, its operands in shared memory, and its epilogue.

`addressing.py` has the position of a tile and the index values at its rows and columns.
`staging.py` copies operands to shared memory, also operands of few bits.  `epilogue.py` adds up
partial sums and stores results.
"""
