"""The memory layout that kernels, drivers and hosts share, word for word.

Input: nothing.  Output: numbers, defined only here.  docs/bundle-wasm.md explains them.
`scripts/abi.py` writes web/engine/abi.js from them, and a test compares the two.  Addresses and
offsets are in bytes.
"""

from __future__ import annotations

#: Bytes of a word of 32 bits, in which memory, arguments and registers are counted.
WORD_BYTES = 4

#: Words of the vectors that GPU kernels load.  Such a vector begins at a multiple of it.
VECTOR_WORDS = 4

#: The largest memory that 32-bit addresses reach.
MEMORY_LIMIT = 1 << 32

#: Bytes of the control block, at address 0.  Words that are written often have their own pair of
#: cache lines, because processors fetch lines in pairs.
CONTROL_BYTES = 4096
PREEMPT, ABORT, TRAPPED, STOP, SPIN, STALL_LIMIT = 0, 4, 8, 12, 16, 20
#: A kernel that stops at a bad index writes the number of its check plus one to CHECK, and the
#: 64-bit index to INDEX. The host reads both and sets them to 0.
CHECK, INDEX = 24, 32
EPOCH, PLAN, FIRST, LAST, WORKERS, IDLE, COMING = 128, 132, 136, 140, 144, 148, 152
POSITION, DONE = 256, 264
SLEEPERS, SEEN, QUIET = 384, 388, 392

#: Each worker has one cache line with two words: STEP is its current step plus one (0: outside any
#: run), PROGRESS counts the tickets that it finished.
WORKER_LINES, WORKER_BYTES, MOST_WORKERS = 2048, 64, 32
STEP, PROGRESS = 0, 4
OUTSIDE, JOINED = 0, -1

#: A GPU kernel that stops at a bad index writes one word: the number of its step plus one in the
#: bits below this one, and the number of its check from this bit on.
CHECK_BIT = 20

#: Values of ABORT, which are also what `run` returns.
TRAP, STALLED = 1, 2

#: Bytes of a plan image's header and of one step's record, and the fields of both.
HEADER, RECORD = 16, 32
COUNT, WIDEST, TABLE = 0, 4, 8
SLOT, ARGS, TILES, GRAIN, TICKETS, BEFORE, SKIP, FLAGS = range(0, 32, 4)

#: TABLE is the offset of a table in the image; 0: there is none.  Its first word is the number of
#: entries.  Each entry has ENTRY bytes and the fields below.  When the extent NUMBER becomes n, the
#: word at PLACE becomes min((n * TIMES + PLUS) / BY, MOST) * EACH.
ENTRY = 28
PLACE, NUMBER, TIMES, PLUS, BY, MOST, EACH = range(0, 28, 4)

#: Bits of FLAGS.
WAITS, BACK = 1, 2

#: Buffers and regions of memory begin at multiples of a cache line.
ALIGNMENT = 64


def align(n: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-n // ALIGNMENT) * ALIGNMENT
