"""The CUDA target: loops of groups of threads as CUDA C++ for NVRTC.

`api.py` is what targets/protocol.py asks for, `emit.py` the text of a kernel, `prelude.py` what all
texts share.
"""
