"""Shared by GPU targets: lowerings in which several threads compute one tile together.

These are loop nests with thread numbers, shared memory and barriers.  The text of a language is in
the target's own folder; loops of one thread with vectors are in `targets/simd`.
"""
