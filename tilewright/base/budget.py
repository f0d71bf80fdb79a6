"""The words in a GPU's memory that limit the workers of normal kernels.

Input: nothing.  Output: their offsets and sizes, which kernels, hosts and policies read from here.
docs/elastic-form.md explains them.
"""

from __future__ import annotations

#: The budget that every worker is within, so none leaves early.
UNLIMITED = 2**31 - 1
#: Words of the block, by number: how many workers may stay; how often workers have read the budget
#: (counted on the CPU only); how many workers run now.
BUDGET, LOOKS, ALIVE = 0, 1, 2
#: Bytes of the block.
BUDGET_BYTES = 16
#: Version of the arguments of elastic kernels and of the meaning of these words.  Bundles contain
#: the kernels' source, so a host compares this number.
PROTOCOL = 2
#: Numbers of words: of a kernel's own block, and of each worker's save area, which fills a sector
#: of the L2 cache.
KERNEL_WORDS, SAVE_AREA_WORDS = 4, 8
