"""Matrix products by matrix units (tensor cores, subgroup matrices)."""
