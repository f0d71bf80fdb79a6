// Written by scripts/abi.py from tilewright/base/abi.py; do not edit.
// The words of the control block and of plan images (docs/bundle-wasm.md), by 32-bit index.

export const PREEMPT = 0;
export const ABORT = 1;
export const TRAPPED = 2;
export const STOP = 3;
export const SPIN = 4;
export const CHECK = 6;
export const INDEX = 8;
export const EPOCH = 32;
export const DONE = 66;
export const SLEEPERS = 96;
export const WORKER_LINES = 512;
export const WORKER_WORDS = 16;
export const CONTROL_WORDS = 1024;
export const HEADER = 4;
export const RECORD = 8;
export const WIDEST = 1;
export const SLOT = 0;
export const ARGS = 1;
export const TILES = 2;
export const GRAIN = 3;
export const TICKETS = 4;
export const BEFORE = 5;
export const TRAP = 1;
export const STALLED = 2;
export const MOST_WORKERS = 32;
export const CHECK_BIT = 20;
