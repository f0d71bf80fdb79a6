// Text generation with a language model whose caches are states: first the prompt, then one token after the other.
// Input: an engine whose model takes ids and the index of the last valid key; the ids of a prompt.  Output: an async iterator of ids. There
// is no tokenizer here. If the model has the output `token`, it chooses the token; otherwise it gives logits and the page chooses.

import { EngineError } from './errors.js';
import { requireOptions } from './tensors.js';

/** Names of the model's inputs and outputs. */
const [IDS, LAST, TOKEN] = ['input_ids', 'seqlens_k', 'token'];

/** The likeliest token. @param {ArrayLike<number>} logits */
export function greedy(logits) {
  let best = 0;
  for (let at = 1; at < logits.length; at++) if (logits[at] > logits[best]) best = at;
  return best;
}

/**
 * Yields ids one after the other, up to `most`, or up to and including one of `end`.  Rejects with an EngineError: `input` for a prompt
 * that does not fit, or a full cache; `kernel-trap` for ids that the model does not have.  The caches then hold the tokens before.
 * @type {T.Generate}
 */
export async function* generate(engine, prompt, options = {}) {
  requireOptions('generate', options, 'choose, end, inputs, most, past, signal');
  const { past: before = 0, most = Infinity, end = [], choose = greedy, inputs = () => ({}), signal } = options;
  let past = before;
  const { rows, room } = sizesOf(engine);
  const wrong = prompt.findIndex((id) => !Number.isInteger(id) || id < 0);
  if (wrong >= 0 || !prompt.length) {
    throw new EngineError('input', prompt.length ? `Element ${wrong} of the prompt is not an id: ${prompt[wrong]}` : 'The prompt is empty', 'Give the ids that the tokenizer made');
  }
  const left = room - past - prompt.length;
  if (!(left >= 0)) {
    throw new EngineError('input', `The prompt has ${prompt.length} tokens, and the cache of ${room} has ${Math.max(0, room - past)} free`,
      'Shorten it, start again with past: 0, or build the model with a larger cache', { tokens: prompt.length, past, room });
  }
  // If the model chooses the token, and its outputs are small enough for the device to keep (webgpu.js), the next step can begin on a GPU
  // before the token has been read back.
  const { device, inputs: taken, outputs: given } = engine.info;
  const ids0 = taken.find(({ name }) => name === IDS);
  const chains = device === 'webgpu' && given.length === 1 && given[0].name === TOKEN && given[0].dtype === ids0?.dtype;
  /** Runs these ids, or the token that the last run chose. @type {T.GenerateRun} */
  const run = (data, count) => {
    past += count;
    return engine.run({ [IDS]: { data, shape: [1, count] }, [LAST]: [past - 1], ...inputs() }, { signal });
  };
  let ids = prompt;
  /** The run that was started ahead. @type {Promise<T.RunResult> | null} */
  let next = null;
  for (let made = 0; made < most; made++) {
    if (!next && past + ids.length > room) throw new EngineError('input', `The cache of ${room} tokens is full`, 'Start again with past: 0, or build the model with a larger cache', { past, room });
    let running = next;
    for (const part of next ? [] : partsOf(ids, past, rows, room)) {
      await running;
      running = run(part, part.length);
    }
    // After the last token of a text this run was in vain; its row of the caches will be overwritten.
    next = chains && rows[0] === 1 && made + 1 < most && past < room ? run(/** @type {any} */ ({ from: TOKEN, length: 1 }), 1) : null;
    next?.catch(() => {});
    const { outputs } = /** @type {T.RunResult} */ (await running);
    const [found] = Object.values(/** @type {any} */ (outputs));
    const token = outputs[TOKEN] ? Number(outputs[TOKEN].data[0]) : choose(found.data);
    yield token;
    if (end.includes(token)) return;
    ids = [token];
  }
}

/** The numbers of rows that the plans take, ascending, and the rows of the caches. @type {T.GenerateSizes} */
function sizesOf(engine) {
  const { inputs, dims } = engine.info;
  const name = inputs.find((input) => input.name === IDS)?.shape[1];
  const room = engine.parts.program.states[0]?.shape.at(-2);
  if (name === undefined || room === undefined || !inputs.some((input) => input.name === LAST)) {
    throw new EngineError('input', `The model cannot generate text: it needs the inputs ${IDS} [1, n] and ${LAST} [1], and caches as states`,
      'Build it with --state for each cache, see docs/decoders.md', { inputs: inputs.map((input) => input.name) });
  }
  return { rows: typeof name === 'number' ? [name] : [...dims[name]].sort((a, b) => a - b), room };
}

/**
 * Splits the ids into parts that fit a plan exactly; only the first part of an empty cache may be padded.
 * @type {T.GenerateParts}
 */
function partsOf(ids, past, rows, room) {
  const parts = [];
  let at = 0;
  const longest = rows[rows.length - 1];
  // The padding is in the cache, too, until later rows overwrite it.
  const first = ids.length % longest || longest;
  const fits = rows.find((count) => count >= first);
  if (!past && fits !== undefined && fits <= room) parts.push(ids.slice(0, at = first));
  while (at < ids.length) {
    const count = [...rows].reverse().find((size) => size <= ids.length - at);
    if (count === undefined) {
      throw new EngineError('input', `${ids.length - at} tokens fit no plan of ${rows.join(', ')} tokens`, 'Build the model with a bucket of 1 token', { rows });
    }
    parts.push(ids.slice(at, at += count));
  }
  return parts;
}
