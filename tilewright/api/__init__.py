"""What programs and commands share above the compiler; `import tilewright` offers a part of it.

Input: files of models.  Output: bundles, and what runs them.  Commands and servers are not here.
"""
