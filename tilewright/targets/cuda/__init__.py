"""The CUDA target: writes loops of cooperating threads as CUDA C++ for NVRTC.

`target.py` implements targets/protocol.py, `emit.py` writes one kernel, `prelude.py` has the text
that all kernels share, and `steps.py` encodes the steps of a plan.  Matrix units are in `mma.py`
and `wgmma.py`, and `strategies.py` chooses their schedules.  `chunks.py` and `clock_model.py` have
the chunks after which a worker can leave a tile, and `features.py` the features of a capability.
"""
