"""What only experiments need: what is measured, the simulated GPU, workloads and kernels of papers.

It may import everything of `tilewright`, which imports nothing of it.  Wheels do not have it.
"""
