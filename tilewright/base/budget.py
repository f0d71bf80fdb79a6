"""The words in a GPU's memory that hold back normal kernels, shared by kernels, hosts and policies.

Input: nothing.  Output: numbers, defined only here.  docs/elastic-form.md explains them.
"""

from __future__ import annotations

#: The budget where nobody is sent away.
EVERYBODY = 2**31 - 1
#: Words of the block: workers that may stay; on the CPU a count of looks; workers that are alive.
BUDGET, LOOKS, ALIVE = 0, 1, 2
#: Bytes of a word and of the block.
WORD, BLOCK = 4, 16
#: Version of what elastic kernels take and of what their words mean; bundles have their text.
PROTOCOL = 2
#: Words of a kernel, and of each worker's slot: a sector of the L2 cache.
KERNEL, SLOT = 4, 8
