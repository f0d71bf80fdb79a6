"""The part of tuning that needs no device: candidates, their order, the messages about them.

The package has the candidates of a kernel (`candidates.py`), their order (`candidate_order.py`),
the offers to a device (`catalogue.py`), messages and their meaning (`messages.py`), bundles with
other schedules (`relink.py`), and tuning without a server (`candidate_folder.py`,
`page_compiler.py`, `source_zip.py`).  `host_tuner.py` is the tuner of hosts without a page, with
`socket_client.py`, `trial.py`, `trial_inputs.py` and `paired_times.py`.  Votes and a page's
measurements are in `store/`, `server/` and `web/tune/`.  Schedules and spaces belong to the
targets.
"""
