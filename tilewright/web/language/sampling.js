// Which token comes next: greedy, or drawn at random from the likeliest ones.
// Input: logits, the ids so far.  Output: an id. Each step is that of tilewright/language/sampling.py, with the same roundings, so that a
// seed draws the same tokens in both languages.

import { EngineError } from '../engine/errors.js';
import { greedy } from '../engine/generate.js';

/** @type {Required<Language.Sampling>} */
const DEFAULTS = { temperature: 0, topK: 40, topP: 0.95, minP: 0.05, penalty: 1, recent: 64, seed: 0, frequencyPenalty: 0, presencePenalty: 0, logitBias: {} };

/** log2(e), and ln(2) in two parts, of which the first has few digits. */
const [LOG2E, LN2_HIGH, LN2_LOW] = [1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10];
/** Factors of exp's series from the 13th power down: 1/n!. */
const SERIES = Array.from({ length: 14 }, (_, n) => 1 / Array.from({ length: 13 - n }, (_, m) => m + 1).reduce((a, b) => a * b, 1));
/** The power of a smaller number is 0. */
const LEAST = -485;

/** Completes and checks the settings. @param {Language.Sampling} given @param {number} words how many tokens the model has @returns {Required<Language.Sampling>} */
export function samplingOf(given, words) {
  const whole = Object.fromEntries(Object.entries(DEFAULTS).map(([name, value]) => [name, /** @type {any} */ (given)[name] ?? value]));
  const { temperature, topK, topP, minP, penalty, recent, seed, frequencyPenalty, presencePenalty, logitBias } = whole;
  const counts = [topK, recent].every((value) => Number.isInteger(value) && value >= 0) && Number.isSafeInteger(seed);
  if (!(counts && temperature >= 0 && penalty > 0 && topP > 0 && topP <= 1 && minP >= 0 && minP <= 1)) {
    throw new EngineError('input', 'These settings choose no token',
      'Temperature is 0 or more, topK and recent are whole numbers from 0, the penalty is above 0, topP and minP are probabilities, the seed is a whole number',
      { temperature, topK, topP, minP, penalty, recent, seed });
  }
  if (![frequencyPenalty, presencePenalty, ...Object.values(logitBias)].every(Number.isFinite)) {
    throw new EngineError('input', 'The frequency penalty, the presence penalty and biases must be finite numbers', 'A bias of -100 bans a token, one of 100 forces it');
  }
  const wrong = Object.keys(logitBias).find((id) => !(/^\d+$/.test(id) && Number(id) < words));
  if (wrong !== undefined) {
    throw new EngineError('input', `logitBias names the token ${wrong}, and the model has ${words}`, "Ids count from 0; an answer's `ids` has those of its tokens", { words });
  }
  return /** @type {any} */ (whole);
}

/** Whether the settings take the likeliest token, whatever came before. @param {Required<Language.Sampling>} sampling */
export const isPlain = ({ temperature, penalty, frequencyPenalty, presencePenalty, logitBias }) =>
  temperature === 0 && penalty === 1 && !frequencyPenalty && !presencePenalty && !Object.keys(logitBias).length;

/** Chooses one id after the other, of one answer. @type {Language.Sampler} */
export function makeSampler(sampling) {
  const { temperature, topK, topP, minP } = sampling;
  const random = mulberry32(sampling.seed);
  const adjusted = adjuster(sampling);
  /** How often the answer has a token. @type {Map<number, number>} */
  const counts = new Map();
  /** @param {ArrayLike<number>} values */
  const chosen = (values) => {
    if (temperature === 0) return greedy(values);
    let order = largest(values, topK);
    const shares = softmax(order.map((id) => values[id]));
    let [kept, sum] = [1, shares[0]];
    while (sum < topP && kept < shares.length) sum += shares[kept++];
    order = order.slice(0, kept).filter((_, at) => shares[at] >= minP * shares[0]);
    const last = softmax(order.map((id) => (values[id] - values[order[0]]) / temperature));
    sum = 0;
    const sums = last.map((share) => (sum += share));
    const drawn = random() * sum;
    return order[Math.min(sums.filter((part) => part <= drawn).length, order.length - 1)];
  };
  return (logits, ids, allowed) => {
    const values = adjusted(logits, ids, counts);
    const token = chosen(allowed ? Float64Array.from(values, (value, id) => (allowed[id] ? value : -Infinity)) : values);
    counts.set(token, (counts.get(token) ?? 0) + 1);
    return token;
  };
}

/** Logits after penalties and biases. @type {Language.Adjuster} */
function adjuster(sampling) {
  const { penalty, recent, frequencyPenalty, presencePenalty, logitBias } = sampling;
  const bias = Object.entries(logitBias).map(([id, value]) => /** @type {const} */ ([Number(id), value]));
  if (isPlain({ ...sampling, temperature: 0 })) return (logits) => logits;
  return (logits, ids, counts) => {
    const values = Float64Array.from(logits);
    for (const id of penalty === 1 || !recent ? [] : new Set(ids.slice(-recent))) values[id] = values[id] > 0 ? values[id] / penalty : values[id] * penalty;
    if (frequencyPenalty || presencePenalty) for (const [id, count] of counts) values[id] -= count * frequencyPenalty + presencePenalty;
    for (const [id, value] of bias) values[id] += value;
    return values;
  };
}

/** A generator of numbers in [0, 1) from 32 bits of state. @param {number} seed */
export function mulberry32(seed) {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** @type {Language.Largest} */
function largest(values, count) {
  if (!count || count >= values.length) {
    return Array.from({ length: values.length }, (_, id) => id).sort((one, other) => values[other] - values[one] || one - other);
  }
  /** @type {number[]} */
  const found = [];
  for (let id = 0; id < values.length; id++) {
    const value = values[id];
    if (found.length === count && !(value > values[found[count - 1]])) continue;
    let [low, high] = [0, found.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[found[middle]] >= value) low = middle + 1;
      else high = middle;
    }
    found.splice(low, 0, id);
    if (found.length > count) found.pop();
  }
  return found;
}

/** Of numbers of which the first is the largest. @param {number[]} values */
function softmax(values) {
  const powers = values.map((value) => power(value - values[0]));
  let sum = 0;
  for (const value of powers) sum += value;
  return powers.map((value) => value / sum);
}

const words = new Int32Array(2);
const double = new Float64Array(words.buffer);
/** Where the exponent of a number lies. */
const HIGH = new Uint8Array(new Uint32Array([1]).buffer)[0];

/** exp(x) of x <= 0 by sums and products alone: browsers and NumPy round their own functions differently. @param {number} x */
function power(x) {
  if (!(x >= LEAST)) return 0;
  const twos = Math.floor(x * LOG2E + 0.5);
  const rest = (x - twos * LN2_HIGH) - twos * LN2_LOW;
  let sum = 0;
  for (const factor of SERIES) sum = sum * rest + factor;
  words[HIGH] = (1023 + twos) << 20;
  return sum * double[0];
}
