"""Joints: several steps of a plan in one dispatch (horizontal fusion, and chains of products)."""
