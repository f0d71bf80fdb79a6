"""Code for experiments only: measurements, the simulated GPU, workloads, and kernels and policies
of papers.  It may import anything of `tilewright`; `tilewright` imports nothing of it.  Wheels do
not contain it.
"""
