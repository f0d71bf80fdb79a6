"""Where tensors, states and values lie on a device, for all targets for GPUs.

`memory_layout.py` gives each an address; `buffer_assignment.py` divides them among several buffers
if one is too small.  Differences between targets are data (`MemoryTraits`).
"""
