"""The part of tuning that needs no device: candidates, their order, the messages about them.

Here belong the candidates of a kernel (`candidates.py`), the order of trial (`compose.py`), what is
offered (`offers.py`, `catalogue.py`), the messages and their meaning (`messages.py`, `fields.py`),
bundles with other schedules (`relink.py`), and tuning without a server (`folder.py`, `client.py`,
`source.py`).  Nothing here measures, keeps a connection or stores a vote: that is for `web/tune/`,
`server/` and `store/`.  Schedules and spaces themselves are a target's.
"""
