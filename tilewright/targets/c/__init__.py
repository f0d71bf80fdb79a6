"""C as a target: scalar code for the system's compiler, the simplest target there is.

It shows what a target needs at least, and judges others where browsers are missing.
"""
