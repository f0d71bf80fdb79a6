"""Hosts: they run a bundle from Python.

Here belong one host per way to execute code (`wasmtime.py`, `native.py`, `browser.py` with its
`browser_*.py`), the host that defines right results (`reference.py`), and what all do around a run
(`tensors.py`, `plans.py`).  A host reads a bundle and never compiles a model, chooses a schedule or
votes; timing and tuning in a browser are done by the page (`web/`).
"""
