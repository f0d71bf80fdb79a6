"""The WGSL target: the text of kernels, and plans as dispatches.

By default a model's data lies in one storage buffer of 32-bit words (memory.py); types that WGSL
lacks are made of words (prelude.py). Kernels by workgroups come from targets/gpu, others have one
invocation per tile. Devices, pipelines and buffers belong to web/engine/webgpu.js.
"""
