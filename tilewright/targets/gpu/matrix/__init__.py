"""Matrix products by matrix units (tensor cores, subgroup matrices).

`tiles.py` makes the loops.  Operands are staged in whole vectors (`vector_staging.py`) or copied
asynchronously (`operands.py`, `async_copies.py`).
"""
