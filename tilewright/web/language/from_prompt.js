// Text generation with an encoder-decoder model: it writes a new text from a prompt.  Input: an engine whose model takes a prompt and the tokens
// so far; ids of a prompt.  Output: an async iterator of ids.  The states hold what the decoder reads of one prompt, which is computed once. A
// model with caches of past tokens computes each token once; others compute all tokens so far in each run.  tilewright/language/prompt_session.py
// does the same.

import { EngineError } from '../engine/errors.js';

/** Names of the model's inputs, and of its output. */
const [PROMPT, PROMPT_LAST, IDS, LAST, LOGITS] = ['encoder_ids', 'encoder_last', 'input_ids', 'seqlens_k', 'logits'];

/** How names of the caches of past tokens begin. */
const CACHES = 'past_decoder.';

/** Tokens that a prompt may have; 0 if the model takes no prompt of its own. @param {Pick<T.Manifest, 'inputs' | 'dims'>} manifest */
export const promptRoom = (manifest) => Math.max(0, ...sizesOf(manifest, PROMPT));

/** The buckets of an input's last dimension. @type {Language.SizesOf} */
export function sizesOf({ inputs, dims }, name) {
  const size = inputs.find((input) => input.name === name)?.shape[1] ?? 0;
  return typeof size === 'number' ? [size] : dims[size];
}

/**
 * Yields ids one after the other, up to `most`, or up to and including one of `end`.  `held`: whether the states are of this prompt already.
 * Rejects with an EngineError: `context-full` for a prompt or an answer that does not fit, `input` for an empty prompt.
 * @type {Language.FromPrompt}
 */
export async function* fromPrompt(engine, prompt, { starts, held, most, end, signal, choose }) {
  const answers = sizesOf(engine.info, IDS);
  const caches = engine.parts.program.states.filter(({ name }) => name.startsWith(CACHES));
  const [first, room] = [Math.min(...answers), caches.length ? Number(caches[0].shape.at(-2)) : Math.max(...answers)];
  if (!prompt.length) throw new EngineError('input', 'The prompt is empty', 'Give at least one token');
  requireRoom('prompt', prompt.length, promptRoom(engine.info));
  const tokens = [...starts];
  /** @type {Language.RunTokens} */
  const run = async (from, count) => {
    const asked = held ? [] : prompt;
    const { outputs } = await engine.run({
      [PROMPT]: { data: [...asked], shape: [1, asked.length] }, [PROMPT_LAST]: [prompt.length - 1],
      [IDS]: { data: tokens.slice(from, count), shape: [1, count - from] }, [LAST]: [count - 1],
    }, { signal });
    held = true;
    return outputs[LOGITS].data;
  };
  /** Tokens in the caches. */
  let past = 0;
  /** The logits after all tokens. @type {() => Promise<ArrayLike<number>>} */
  const after = async () => {
    if (!caches.length) {
      const early = held ? null : await run(0, Math.min(first, tokens.length));
      return early && tokens.length <= first ? early : run(0, tokens.length);
    }
    while (past < tokens.length - 1) await run(past, ++past);
    return run(past, ++past);
  };
  for (let made = 0; made < most; made++) {
    requireRoom('answer', tokens.length, room);
    const id = choose(await after());
    yield id;
    if (end.includes(id)) return;
    tokens.push(id);
  }
}

/** @param {string} what @param {number} tokens @param {number} context */
function requireRoom(what, tokens, context) {
  if (tokens <= context) return;
  throw new EngineError('context-full', `The ${what} has ${tokens} tokens, and the bundle holds ${context}`, 'Shorten it, or build the model with a larger context', { tokens, context });
}
