"""Where tensors, states and values lie on a device, for all targets for GPUs.

`gpu_memory.py` gives each an address; `further_buffers.py` divides them among several buffers if
one is too small.  Differences between targets are data (`MemoryKind`).
"""
