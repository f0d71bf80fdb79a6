"""The C target: scalar code for the system's C compiler.  It is the smallest target.

It shows the least that a target must have.  Tests use it as a reference where no browser is
installed.
"""
