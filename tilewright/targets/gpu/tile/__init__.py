"""Tile operands: how they are staged in shared memory, and the address of each element."""
