// Cooperative scheduling of the trial worker: between pieces of work it yields to its message queue, waits while the
// page has paused it, and sends heartbeats.
// Input: a pause that begins or ends.  Output: milliseconds of work without pauses, heartbeats.

/** Milliseconds of work between two yields. */
export const YIELD_MS = 2;
/** Milliseconds between two heartbeats. */
const BEAT = 100;
/** Milliseconds between two readings above which the clock must have jumped. */
const JUMP = 20_000;

/** Number of the current pause; 0: none. */
let pause = 0;
let resume = () => {};
/** Milliseconds of work so far, without pauses. */
let worked = 0;
/** Times of the last clock reading, heartbeat and yield. */
let looked = 0;
let beaten = 0;
let breathed = 0;

/** Starts counting work from now; returns the milliseconds of work before. */
export function beginWork() {
  looked = performance.now();
  return worked;
}

/** Begins or ends a pause. @param {number} number of the pause that begins; 0: it ends */
export function rest(number) {
  pause = number;
  if (!pause) resume();
}

/** Milliseconds of work so far; jumps of the clock do not count. */
export function workedUntilNow() {
  const now = performance.now();
  if (now > looked && now - looked < JUMP) worked += now - looked;
  looked = now;
  return worked;
}

/** Sends a heartbeat, at most one per BEAT. */
export function beat() {
  const now = Date.now();
  if (Math.abs(now - beaten) < BEAT) return;
  beaten = now;
  self.postMessage({ beat: true });
}

/** Sends heartbeats while the work awaits something; returns a function that stops them. */
export function beating() {
  const timer = setInterval(beat, BEAT);
  return () => clearInterval(timer);
}

/** Yields to the message queue, and waits for the end of a pause; true if there was one. */
export async function yieldNow() {
  const channel = new MessageChannel();
  await new Promise((resolve) => {
    channel.port1.onmessage = resolve;
    channel.port2.postMessage(null);
  });
  channel.port1.close();
  workedUntilNow();
  breathed = looked;
  beat();
  if (!pause) return false;
  // Acknowledges the pause: no kernel runs until it ends.
  self.postMessage({ rests: pause });
  await new Promise((resolve) => (resume = () => resolve(null)));
  breathed = looked = performance.now();
  return true;
}

/** Yields if YIELD_MS has passed since the last time. */
export async function yieldIfDue() {
  return Math.abs(performance.now() - breathed) >= YIELD_MS && yieldNow();
}

/** Works on `count` items in pieces, and yields in between where due. @type {Tune.InPieces} */
export async function inPieces(count, piece, work) {
  for (let from = 0; from < count; from += piece) {
    work(from, Math.min(count, from + piece));
    await yieldIfDue();
  }
}
