"""WGSL as a target: one invocation per row of a kernel, scalar, nothing clever.

All that kernels read and write lies in one storage buffer of 32-bit words (`memory.py`); types that
WGSL does not have are made of words (`prelude.py`).  Here belong the emitter and the encoding of
plans as dispatches; devices, pipelines and buffers are the affair of web/engine/webgpu.js.
"""
