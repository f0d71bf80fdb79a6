"""Shared by GPU targets: lowerings in which several threads compute one tile together.

These are loop nests with thread numbers, shared memory and barriers.  Each family of kernels has a
folder: `schedule.py` has the parameters of a schedule, `strategies.py` the default and the
candidates, and the other files make the loops.  `workgroup_limits.py` has the limits of a group of
threads, and `vector_buffers.py` finds the buffers that are read in vectors.  The text of a language
is in the target's own folder; loops of one thread with vectors are in `targets/simd`.
"""
