// Text generation with an encoder-decoder model: it writes a new text from a prompt.  Input: an engine whose model takes a prompt and the tokens
// so far; ids of a prompt.  Output: an async iterator of ids.  The states hold what the decoder reads of one prompt, which is computed once; each
// run computes all tokens so far.  tilewright/language/prompt_session.py does the same.

import { EngineError } from '../engine/errors.js';

/** Names of the model's inputs, and of its output. */
const [PROMPT, PROMPT_LAST, IDS, LAST, LOGITS] = ['encoder_ids', 'encoder_last', 'input_ids', 'seqlens_k', 'logits'];

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
  const [first, room] = [Math.min(...answers), Math.max(...answers)];
  if (!prompt.length) throw new EngineError('input', 'The prompt is empty', 'Give at least one token');
  requireRoom('prompt', prompt.length, promptRoom(engine.info));
  const tokens = [...starts];
  /** @type {Language.RunFrom} */
  const run = async (asked, ids) => (await engine.run({
    [PROMPT]: { data: [...asked], shape: [1, asked.length] }, [PROMPT_LAST]: [prompt.length - 1],
    [IDS]: { data: ids, shape: [1, ids.length] }, [LAST]: [ids.length - 1],
  }, { signal })).outputs[LOGITS].data;
  for (let made = 0; made < most; made++) {
    requireRoom('answer', tokens.length, room);
    let logits = held ? null : await run(prompt, tokens.slice(0, first));
    held = true;
    if (!logits || tokens.length > first) logits = await run([], tokens);
    const id = choose(/** @type {ArrayLike<number>} */ (logits));
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
