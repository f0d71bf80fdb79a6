"""Hosts run a bundle from Python.

There is one host for each way to execute code (`wasmtime.py`, `native.py`, `browser.py` with its
`browser_*.py`, …), a host that defines correct results (`reference.py`), and code that all share
(`inputs_outputs.py`, `plan_interpreter.py`).  A host reads a bundle; it never compiles a model,
chooses a schedule or votes.  In a browser the page does the timing and tuning (`web/`).
"""
