// Speech to text: what is said in a recording.
// Input: an engine whose model takes the samples of a window and a token; samples.  Output: an async iterator of ids.
// A recording is cut into windows, and each is decoded by itself: always the likeliest token that may be chosen.
// tilewright/language/transcript.py and recordings.py do the same.

import { EngineError } from '../engine/errors.js';
import { greedy } from '../engine/generate.js';
import { sizesOf } from './from_prompt.js';

/** Names of the model's inputs, of its output, and of the decoder's own caches. */
const [SAMPLES, COUNT, IDS, LAST, LOGITS, CACHES] = ['samples', 'sample_count', 'input_ids', 'seqlens_k', 'logits', 'past_decoder.'];
/** Nobody speaks in a window if this probability of silence is exceeded, and the mean logarithm of its tokens' probabilities is not. */
const [SILENT, LIKELY] = [0.6, -1];
/** Seconds of a recording's quietest parts, where it is cut. */
const QUIET = 0.2;

/** Samples that the model hears at once; 0 if it hears nothing. @param {Pick<T.Manifest, 'inputs' | 'dims'>} manifest */
export const soundWindow = (manifest) => Math.max(0, ...sizesOf(manifest, SAMPLES));

/** Tokens that the text of a window may have, its prompt included. @param {readonly { name: string; shape: number[] }[]} states */
export const textRoom = (states) => states.find(({ name }) => name.startsWith(CACHES))?.shape.at(-2) ?? 0;

/** Where the parts of a recording begin and end: in the quietest place of the last third of a window. @type {Language.WindowsOf} */
export function windowsOf(samples, size, rate) {
  /** @type {[number, number][]} */
  const found = [];
  const step = Math.max(1, Math.trunc(Math.trunc(QUIET * rate) / 2));
  let start = 0;
  while (samples.length - start > size) {
    const first = start + Math.trunc((size * 2) / 3);
    const count = Math.trunc((start + size - first) / step);
    const powers = Array.from({ length: count }, (_, block) => {
      let sum = 0;
      for (let at = first + block * step; at < first + (block + 1) * step; at++) sum += samples[at] * samples[at];
      return sum;
    });
    const pairs = powers.slice(1).map((power, at) => powers[at] + power);
    // The likeliest of the negative powers is the quietest.
    const end = pairs.length ? first + (greedy(pairs.map((power) => -power)) + 1) * step : start + size;
    found.push([start, end]);
    start = end;
  }
  return [...found, [start, samples.length]];
}

/** Yields the ids of the text, without the ids that end a window.  `heard` is told the language. @type {Language.FromSound} */
export async function* fromSound(engine, samples, { speech, ends, language, task, signal, heard, ran }) {
  const room = textRoom(engine.parts.program.states);
  let spoken = language;
  for (const [from, to] of windowsOf(samples, soundWindow(engine.info), speech.rate)) {
    const part = samples.subarray(from, to);
    /** The logits after a token. @param {number} id @param {number} at */
    const after = async (id, at) => {
      const { outputs } = await engine.run({
        [SAMPLES]: { data: at ? part.subarray(0, 0) : part, shape: [1, at ? 0 : part.length] }, [COUNT]: [part.length],
        [IDS]: { data: [id], shape: [1, 1] }, [LAST]: [at],
      }, { signal });
      ran();
      return Float32Array.from(outputs[LOGITS].data);
    };
    let logits = await after(speech.start, 0);
    const codes = Object.keys(speech.languages);
    if (codes.length && !spoken) spoken = codes[greedy(codes.map((code) => logits[speech.languages[code]]))];
    heard(spoken);
    const doubtful = speech.silence !== null && shareOf(logits, speech.silence) > SILENT;
    const asked = [...(codes.length ? [speech.languages[spoken]] : []), ...(task in speech.tasks ? [speech.tasks[task]] : []), speech.plain];
    let at = 1;
    for (const id of asked) logits = await after(id, at++);
    /** @type {number[]} */
    const written = [];
    let sum = 0;
    for (const most = Math.min(Math.trunc(room / 2), room - at); written.length < most;) {
      for (const id of written.length ? speech.never : [...speech.never, ...speech.neverFirst]) logits[id] = -Infinity;
      const id = greedy(logits);
      sum += Math.log(shareOf(logits, id));
      if (ends.includes(id)) break;
      written.push(id);
      if (!doubtful) yield id;
      if (written.length < most) logits = await after(id, at++);
    }
    if (doubtful && sum / (written.length + 1) > LIKELY) yield* written;
  }
}

/** Samples as the engine takes them.  Throws `input`. @param {ArrayLike<number>} given */
export function samplesOf(given) {
  const samples = Float32Array.from(given ?? []);
  if (!samples.length || !samples.every(Number.isFinite)) {
    throw new EngineError('input', samples.length ? 'The recording has samples that are not finite' : 'The recording is empty',
      'Give the samples of one channel as a Float32Array, as `new AudioContext({ sampleRate: 16000 }).decodeAudioData(bytes)` makes them');
  }
  return samples;
}

/** The probability of a token. @param {ArrayLike<number>} logits @param {number} id */
function shareOf(logits, id) {
  const most = logits[greedy(logits)];
  let sum = 0;
  for (let at = 0; at < logits.length; at++) sum += Math.exp(logits[at] - most);
  return Math.exp(logits[id] - most) / sum;
}
