"""Joints: one dispatch for several steps of a plan (horizontal fusion, and chains of products)."""
