"""Fused attention by workgroups.

`some_rows.py` computes several query rows through shared memory, `one_row.py` one row by subgroups,
and `many_rows.py` many rows by matrix units.  `scores.py` has masks and the powers of scores.
"""
