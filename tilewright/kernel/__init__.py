"""The tile kernel, neutral: what is computed, never how one kind of machine does it.

Index algebra and expressions (`index.py`, `expr.py`), the specification (`spec.py`) and its normal
form (`collapse.py`), the form of a kernel and the roles in it (`form.py`, `roles.py`), the loop IR
with its builder and interpreter (`loops.py`, `builder.py`, `cache_blocks.py`, `interp.py`), kernels
as data (`serial.py`).

Not here: schedules, lanes, registers, caches, spaces and lowerings; those are a target's.  Only the
standard library and `base/` are needed.
"""
