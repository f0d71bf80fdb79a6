"""The memory layout that kernels, drivers and hosts share, word for word.

Input: nothing.  Output: numbers, defined only here.  docs/bundle.md explains them, `scripts/abi.py`
writes web/engine/abi.js from them, and a test compares the two.  Addresses and offsets are in
bytes.
"""

from __future__ import annotations

#: The largest memory that 32-bit addresses reach.
MEMORY_LIMIT = 1 << 32

#: Bytes of the control block, at address 0.  Words that are written often have their own pair of
#: cache lines, because processors fetch lines in pairs.
CONTROL_BYTES = 4096
PREEMPT, ABORT, TRAPPED, STOP, SPIN, STALL_LIMIT = 0, 4, 8, 12, 16, 20
#: What a kernel leaves that stops at an index: the number of its check plus one, and the index, of
#: 64 bits.  The host that reads them writes 0.
CHECK, INDEX = 24, 32
EPOCH, PLAN, FIRST, LAST, WORKERS, IDLE, COMING = 128, 132, 136, 140, 144, 148, 152
POSITION, DONE = 256, 264
SLEEPERS, SEEN, QUIET = 384, 388, 392

#: One line per worker: its current step plus one (0: outside any run), tickets it finished.
WORKER_LINES, WORKER_BYTES, MOST_WORKERS = 2048, 64, 32
STEP, PROGRESS = 0, 4
OUTSIDE, JOINED = 0, -1

#: Kernels for GPUs leave one word: the number of the step plus one, and from this bit on the number
#: of the check.
CHECK_BIT = 20

#: Values of ABORT, which are also what `run` returns.
TRAP, STALLED = 1, 2

#: Bytes of a plan image's header and of one step's record, and the fields of both.
HEADER, RECORD = 16, 32
COUNT, WIDEST, TABLE = 0, 4, 8
SLOT, ARGS, TILES, GRAIN, TICKETS, BEFORE, SKIP, FLAGS = range(0, 32, 4)

#: Bytes of an entry of the table at TABLE (an offset in the image; 0: there is none), whose first
#: word says how many there are, and an entry's fields: the word at PLACE becomes
#: min((n * TIMES + PLUS) / BY, MOST) * EACH when extent NUMBER becomes n.
ENTRY = 28
PLACE, NUMBER, TIMES, PLUS, BY, MOST, EACH = range(0, 28, 4)

#: Bits of FLAGS.
WAITS, BACK = 1, 2

#: Buffers and regions of memory begin at multiples of a cache line.
ALIGNMENT = 64


def align(n: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-n // ALIGNMENT) * ALIGNMENT
