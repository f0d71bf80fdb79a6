"""Joined steps: one dispatch for several steps of a plan.

`joined_steps.py` finds the steps, and `horizontal_fusion.py` puts maps side by side.  Chains of
products are in `product/chains.py`.
"""
