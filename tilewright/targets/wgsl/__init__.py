"""The WGSL target: writes kernels as text, and plans as dispatches.

By default a model's data is in one storage buffer of 32-bit words (targets/gpu/memory). Types
that WGSL lacks are made of words (prelude.py). targets/gpu makes the kernels that use workgroups;
the others have one invocation per tile. web/engine/webgpu.js handles devices, pipelines and
buffers.
"""
