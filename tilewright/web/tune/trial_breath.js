// How the trial worker breathes: messages come in between pieces of work, pauses last as long as they must.
// Input: a pause that begins or ends.  Output: milliseconds of work without the pauses, signs of life.

/** Milliseconds between two looks at the messages. */
export const BREATH = 2;
/** Milliseconds between two looks at the clock that no work takes. */
const JUMP = 20_000;

let paused = false;
let resume = () => {};
/** Milliseconds of work so far, without pauses; and when the clock was last looked at. */
let worked = 0;
let looked = 0;
let beaten = 0;
let sinceBreath = 0;

/** Work begins: what was before does not count. Gives milliseconds of work so far. */
export function beginWork() {
  looked = performance.now();
  return worked;
}

/** @param {boolean} on */
export function pause(on) {
  paused = on;
  if (!paused) resume();
}

/** Milliseconds of work so far.  A clock that jumped counts nothing. */
export function workedUntilNow() {
  const now = performance.now();
  if (now > looked && now - looked < JUMP) worked += now - looked;
  looked = now;
  return worked;
}

/** Lets messages in, and waits while there is a pause; true if there was one. */
export async function breathe() {
  const channel = new MessageChannel();
  await new Promise((resolve) => {
    channel.port1.onmessage = resolve;
    channel.port2.postMessage(null);
  });
  channel.port1.close();
  workedUntilNow();
  const now = Date.now();
  if (Math.abs(now - beaten) > 100) {
    beaten = now;
    self.postMessage({ beat: true });
  }
  if (!paused) return false;
  workedUntilNow();
  await new Promise((resolve) => (resume = () => resolve(null)));
  looked = performance.now();
  return true;
}

/** @param {number} time */
export async function breatheAfter(time) {
  sinceBreath += time;
  if (sinceBreath < BREATH) return;
  sinceBreath = 0;
  await breathe();
}
