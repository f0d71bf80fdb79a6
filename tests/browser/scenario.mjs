// How long a scenario waits for anything, in milliseconds: far longer than it takes on a busy machine.

export const PATIENCE = 60_000;
