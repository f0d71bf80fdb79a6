"""The CUDA target: writes loops of cooperating threads as CUDA C++ for NVRTC.

`api.py` implements targets/protocol.py, `emit.py` writes one kernel, `prelude.py` has the text that
all kernels share.
"""
