"""Fused attention by workgroups."""
