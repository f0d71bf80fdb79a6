// How the trial worker breathes: messages come in between pieces of work, pauses last as long as they must.
// Input: a pause that begins or ends.  Output: milliseconds of work without the pauses, signs of life.

/** Milliseconds between two looks at the messages. */
export const BREATH = 2;
/** Milliseconds between two signs of life. */
const BEAT = 100;
/** Milliseconds between two looks at the clock that no work takes. */
const JUMP = 20_000;

/** Number of the pause that the page asked for; 0: none. */
let pause = 0;
let resume = () => {};
/** Milliseconds of work so far, without pauses; and when the clock was last looked at. */
let worked = 0;
let looked = 0;
let beaten = 0;
/** When messages could last come in. */
let breathed = 0;

/** Work begins: what was before does not count. Gives milliseconds of work so far. */
export function beginWork() {
  looked = performance.now();
  return worked;
}

/** @param {number} number of the pause that begins; 0: it ends */
export function rest(number) {
  pause = number;
  if (!pause) resume();
}

/** Milliseconds of work so far.  A clock that jumped counts nothing. */
export function workedUntilNow() {
  const now = performance.now();
  if (now > looked && now - looked < JUMP) worked += now - looked;
  looked = now;
  return worked;
}

/** A sign of life, but not too many. */
export function beat() {
  const now = Date.now();
  if (Math.abs(now - beaten) < BEAT) return;
  beaten = now;
  self.postMessage({ beat: true });
}

/** Signs of life while the work waits for something; ends what it began. */
export function beating() {
  const timer = setInterval(beat, BEAT);
  return () => clearInterval(timer);
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
  breathed = looked;
  beat();
  if (!pause) return false;
  // The page may count on it: until the end of this pause no kernel runs.
  self.postMessage({ rests: pause });
  await new Promise((resolve) => (resume = () => resolve(null)));
  breathed = looked = performance.now();
  return true;
}

/** Breathes if it is time to. */
export async function breatheIfDue() {
  return Math.abs(performance.now() - breathed) >= BREATH && breathe();
}

/** Work on `count` items in pieces, with a breath in between where one is due. @type {Tune.InPieces} */
export async function inPieces(count, piece, work) {
  for (let from = 0; from < count; from += piece) {
    work(from, Math.min(count, from + piece));
    await breatheIfDue();
  }
}
