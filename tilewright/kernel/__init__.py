"""The tile kernel, neutral: what is computed, independent of the machine.

The package has index algebra and expressions (`index.py`, `expr.py`), the specification (`spec.py`)
and its normal form (`collapse.py`), the form of a kernel and the roles of its operands (`form.py`,
`product_operands.py`), the loop IR with its builder and interpreter (`loops.py`, `builder.py`,
`cache_blocks.py`, `interpreter.py`), and kernels as data (`serialise.py`).

Schedules, lanes, registers, caches, spaces and lowerings belong to the targets.  Only the standard
library and `base/` are needed.
"""
