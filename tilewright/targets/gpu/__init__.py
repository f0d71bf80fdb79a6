"""What targets for GPUs share: lowerings in which several threads compute one tile together.

Here belong loop nests with a thread's number, shared scratch and barriers.  Text of a language, and
what one thread with vectors does (`targets/simd`), do not.
"""
