"""Several models on one GPU: critical ones with a bound on their slowdown, normal ones beside them.

`policy/` decides and `simulator/` tries decisions; both are pure.
"""
