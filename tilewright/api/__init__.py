"""What programs and commands share above the compiler; `import tilewright` offers a part of it.

Input: files of models.  Output: bundles, and what runs them.  `host_registry.py` has hosts by name,
`language.py` language models that are ready to answer, `language_bundles.py` their bundles.
Commands and servers are not here.
"""
