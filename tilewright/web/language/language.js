// Language models in a page: text or speech in, text out.
// Input: a bundle with the assets of docs/language-models.md, messages.  Output: answers, piece by piece.  The engine computes,
// engine/generate.js runs token after token, text.js knows the vocabulary; this file joins them, and knows which tokens the caches hold, so
// that a prompt that goes on where the last answer ended is not computed again.

import { EngineError, inspect, load } from '../engine/engine.js';
import { asEngineError, requireCount, typed } from '../engine/errors.js';
import { generate } from '../engine/generate.js';
import { requireOptions } from '../engine/tensors.js';
import { fromPrompt, promptRoom } from './from_prompt.js';
import { fromSound, samplesOf, soundWindow, textRoom } from './from_sound.js';
import { isPlain, makeSampler, samplingOf } from './sampling.js';
import { TextStream } from './text_stream.js';
import { openTextThread } from './text_thread.js';

export { EngineError };

const [TOKENIZER, LANGUAGE] = ['tokenizer.json', 'language.json'];
const IDS = 'input_ids';
const SPACE = 0x20;
const OPTIONS = 'frequencyPenalty, logitBias, minP, most, penalty, presencePenalty, recent, schema, seed, signal, stop, temperature, topK, topP';

/** Why an answer ended with an error after which the model goes on, by the error's code. @type {Record<string, 'context' | 'memory'>} */
const FULL = { 'context-full': 'context', 'memory-limit': 'memory' };

/** Whether a bundle is a language model with its text files, by its manifest. @param {Pick<T.Manifest, 'inputs' | 'assets'>} manifest */
export const isLanguageModel = ({ inputs, assets }) =>
  inputs.some(({ name }) => name === IDS) && [TOKENIZER, LANGUAGE].every((wanted) => assets.some(({ name }) => name === wanted));

/** @type {Language.LanguageModelOf} */
export const languageModel = (url, options = {}) => typed(options.signal, async () => {
  const { signal, key, name, verify } = options;
  const manifest = await inspect(url, { key, name, verify });
  if (!isLanguageModel(manifest)) {
    const assets = manifest.assets.map((asset) => asset.name);
    throw new EngineError('input', `The bundle ${manifest.name} is not a language model with the files ${TOKENIZER} and ${LANGUAGE}`,
      'Build it from a language model\'s file with this version of tilewright, see docs/language-models.md', { inputs: manifest.inputs.map((input) => input.name), assets });
  }
  const engine = await load(url, options);
  const stop = () => engine.dispose();
  signal?.addEventListener('abort', stop);
  try {
    const read = async () => ({ tokenizer: await engine.asset(TOKENIZER), language: await engine.asset(LANGUAGE) });
    const text = await openTextThread(read);
    if (signal?.aborted) text.close();
    signal?.throwIfAborted();
    return new Model(engine, text);
  } catch (error) {
    engine.dispose();
    throw signal?.aborted ? signal.reason : error;
  } finally {
    signal?.removeEventListener('abort', stop);
  }
});

/** Tokens that fit: prompt and answer together, of an encoder-decoder model the prompt, of a speech model the text. @type {Language.ContextOf} */
export const contextOf = (manifest) => promptRoom(manifest) || textRoom(manifest.states) || (manifest.states[0]?.shape.at(-2) ?? 0);

/** What a model does, by its manifest. @type {Language.KindOf} */
export const kindOf = (manifest) => (soundWindow(manifest) ? 'speech' : promptRoom(manifest) ? 'encoder-decoder' : 'decoder');

/** What models of a kind do, and how to use them. @type {Record<Language.Kind, [string, string]>} */
const PURPOSES = {
  'decoder': ['a language model, which goes on with a text', 'Call generate(text)'],
  'encoder-decoder': ['an encoder-decoder model, which writes one text from another', 'Call generate(text)'],
  'speech': ['a speech model, which writes what is said in a recording', 'Call transcribe(samples)'],
};

/** A model on a device, and the tokens that its caches hold; the entry's types leave it out. @implements {Language.LanguageModel} */
export class Model {
  /** @type {Language.TextThread} */
  #text;
  /** What the caches hold, from the first token on; of an encoder-decoder model the prompt. @type {readonly number[]} */
  #held = [];
  /** Lost devices so far: after each the caches are empty. @type {number | undefined} */
  #losses;
  #busy = false;
  /** @type {Language.OrderedTokens | undefined} */
  #ordered;

  /** @param {T.Engine} engine @param {Language.TextThread} text */
  constructor(engine, text) {
    this.engine = engine;
    this.#text = text;
    this.#losses = engine.parts.losses;
    const { name, template } = text.description;
    this.name = name;
    this.kind = kindOf(engine.info);
    this.chats = template !== null && this.kind === 'decoder';
    this.context = contextOf({ ...engine.info, states: engine.parts.program.states });
  }

  /** @param {readonly Language.Message[]} messages @param {Language.AnswerOptions} [options] @returns {Language.Answer} */
  chat(messages, options = {}) {
    this.#requireKind('chat', 'decoder');
    return this.#answer(messages, options);
  }

  /** @param {string} prompt @param {Language.AnswerOptions} [options] @returns {Language.Answer} */
  complete(prompt, options = {}) {
    this.#requireKind('go on with a text', 'decoder');
    return this.#answer(prompt, options);
  }

  /** @param {string} prompt @param {Language.AnswerOptions} [options] @returns {Language.Answer} */
  generate(prompt, options = {}) {
    this.#requireKind('read text', 'decoder', 'encoder-decoder');
    return this.#answer(prompt, options);
  }

  /** @param {ArrayLike<number>} recording @param {Language.SpeechOptions} [options] @returns {Language.Transcript} */
  transcribe(recording, options = {}) {
    this.#requireKind('hear', 'speech');
    requireOptions('transcribe', options, 'language, signal, task');
    const { language = '', task = 'transcribe', signal } = options;
    const { ends, speech } = this.#text.description;
    if (!speech) throw new EngineError('invalid-model', 'language.json says nothing of speech', 'Build the bundle again');
    for (const [what, asked, known, usual] of /** @type {const} */ ([['language', language, speech.languages, 'en'], ['task', task, speech.tasks, 'transcribe']])) {
      const names = Object.keys(known);
      if (!asked || names.includes(asked) || (!names.length && asked === usual)) continue;
      throw new EngineError('input', `${this.name} does not know the ${what} ${asked}`, names.length ? `It knows ${names.join(', ')}` : 'It transcribes English');
    }
    const samples = samplesOf(recording);
    const how = { signal, ends, speech, language, task, ran: () => this.#requireCaches() };
    const { bytes, starts } = this.#text.pieces;
    // Tokens behind the one that asks for no times are times.
    const pieces = { bytes, starts: starts.map((start) => Math.min(start, starts[speech.plain + 1] ?? Infinity)) };
    const tokens = () => this.#alone(signal, () => this.#heard(samples, { ...how, heard: (code) => said.hear(code) }));
    const said = new Said({ pieces, isNew: true, stops: [], outcome: 'end', tokens }, samples.length / speech.rate);
    return said;
  }

  /** @param {readonly Language.Message[] | string} text @returns {Promise<number>} */
  count(text) {
    return typed(undefined, async () => (await this.#text.encode(text)).length);
  }

  dispose() {
    this.#text.close();
    this.engine.dispose();
  }

  /** @param {string} what @param {Language.Kind[]} kinds that do it */
  #requireKind(what, ...kinds) {
    if (kinds.includes(this.kind)) return;
    const [purpose, hint] = PURPOSES[this.kind];
    throw new EngineError('input', `${this.name} does not ${what}: it is ${purpose}`, hint, { kind: this.kind });
  }

  /** @param {readonly Language.Message[] | string} text @param {Language.AnswerOptions} options */
  #answer(text, options) {
    requireOptions('chat', options, OPTIONS);
    const { signal, most = Infinity, stop = [], schema, ...sampling } = options;
    const stops = [stop].flat();
    if (most !== Infinity) requireCount('most', most, 1);
    const [words, chooses] = ['logits', 'token'].map((wanted) => this.engine.info.outputs.find(({ name }) => name === wanted));
    const settings = samplingOf(sampling, Number(words?.shape.at(-1) ?? Infinity));
    if (chooses && (schema || !isPlain(settings))) {
      throw new EngineError('input', 'The model chooses its tokens itself', 'Leave out temperature, penalties, biases and schema, or build a model with the output logits');
    }
    if (schema !== undefined && stops.some(Boolean)) throw new EngineError('input', 'A stop text would cut the JSON of a schema', 'Leave out the stop texts: the answer ends with its JSON');
    return new Writing({
      pieces: this.#text.pieces, isNew: this.kind === 'encoder-decoder', stops, outcome: 'most',
      tokens: (told) => this.#alone(signal, () => this.#tokens(text, { signal, most, choose: makeSampler(settings), schema }, told)),
    });
  }

  /** What makes an answer, one at a time. @type {Language.Alone} */
  async* #alone(signal, made) {
    if (this.#busy) throw new EngineError('input', 'The model is writing another answer', 'Wait for its end, or abort it');
    this.#busy = true;
    try {
      signal?.throwIfAborted();
      yield* made();
    } catch (error) {
      // An aborted run writes only behind the tokens that are held; after another error nobody knows what the caches hold.
      const survived = signal?.aborted || (error instanceof EngineError && ['context-full', 'input', 'invalid-model', 'memory-limit'].includes(error.code));
      if (!survived) this.#held = [];
      throw signal?.aborted && error === signal.reason ? error : asEngineError(error);
    } finally {
      this.#busy = false;
    }
  }

  /** The ids of an answer, of which one may end it. @type {Language.Tokens} */
  async* #tokens(text, how, told) {
    const prompt = await this.#text.encode(text, how.signal);
    const matcher = how.schema === undefined ? null : await this.#matcher(how.schema, how.signal);
    /** @type {Language.How} */
    const limited = { ...how, choose: (logits, ids) => how.choose(logits, ids, matcher?.allowed()) };
    for await (const token of this.kind === 'decoder' ? this.#after(prompt, limited, told) : this.#from(prompt, limited, told)) {
      if (!token.last) matcher?.take(token.id);
      const whole = matcher?.isComplete ?? false;
      yield { ...token, whole };
      if (whole) return;
    }
  }

  /** The ids of what is said. @type {Language.Heard} */
  async* #heard(samples, how) {
    this.#forgetLost();
    for await (const id of fromSound(this.engine, samples, how)) yield { id, last: false };
  }

  /** @param {Language.JsonSchema} schema @param {AbortSignal} [signal] */
  async #matcher(schema, signal) {
    const [{ Automaton, JsonMatcher }, { grammarOf }] = await Promise.all([import('./json_matcher.js'), import('./json_schema.js')]);
    const { grammar, root } = grammarOf(schema);
    this.#ordered ??= await this.#text.order(signal);
    return new JsonMatcher(new Automaton(grammar, root), this.#ordered, this.#text.description.ends);
  }

  /** The ids of a text that goes on with the prompt. @type {Language.After} */
  async* #after(prompt, { signal, most, choose }, told) {
    const all = [...prompt];
    const past = this.#reuse(all);
    const end = all.length + most;
    told(all.length, past);
    const { ends } = this.#text.description;
    for await (const id of generate(this.engine, all.slice(past), { past, most, end: ends, signal, choose: (logits) => choose(logits, all) })) {
      this.#requireCaches();
      // The newest token is in no cache yet.
      this.#held = [...all];
      all.push(id);
      yield { id, last: ends.includes(id) };
      if (all.length > this.context && all.length < end && !ends.includes(id)) this.#full(all.length);
    }
  }

  /** The ids of a new text. @type {Language.After} */
  async* #from(prompt, how, told) {
    this.#forgetLost();
    const held = prompt.length === this.#held.length && prompt.every((id, at) => id === this.#held[at]);
    told(prompt.length, held ? prompt.length : 0);
    // Until the first run is over, nobody knows what the states hold.
    if (!held) this.#held = [];
    const { ends, starts } = this.#text.description;
    /** @type {number[]} */
    const written = [];
    for await (const id of fromPrompt(this.engine, prompt, { ...how, starts, held, end: ends, choose: (logits) => how.choose(logits, written) })) {
      this.#requireCaches();
      this.#held = prompt;
      written.push(id);
      yield { id, last: ends.includes(id) };
    }
  }

  /** How many tokens of a prompt need not be computed; the caches hold only these from now on. @param {readonly number[]} prompt */
  #reuse(prompt) {
    this.#forgetLost();
    if (prompt.length > this.context) this.#full(prompt.length);
    let count = 0;
    // The logits after the last token are wanted even if it is held.
    while (count < Math.min(this.#held.length, prompt.length - 1) && this.#held[count] === prompt[count]) count++;
    this.#held = prompt.slice(0, count);
    return count;
  }

  #forgetLost() {
    if (this.#losses !== this.engine.parts.losses) this.#held = [];
    this.#losses = this.engine.parts.losses;
  }

  #requireCaches() {
    if (this.#losses === this.engine.parts.losses) return;
    throw new EngineError('host', 'The device was lost, and the text so far with it', 'Ask again: the model goes on with another device', { lost: true });
  }

  /** @param {number} tokens @returns {never} */
  #full(tokens) {
    throw new EngineError('context-full', `The text has ${tokens} tokens, and the context holds ${this.context}`, 'Shorten it, begin anew, or build the model with a larger context',
      { tokens, context: this.context });
  }
}

/** @implements {Language.Answer} */
class Writing {
  #parts;
  #begun = false;
  #start = 0;
  text = '';
  /** @type {number[]} */
  ids = [];
  /** @type {Language.Ended | null} */
  ended = null;
  promptTokens = 0;
  reusedTokens = 0;
  firstMilliseconds = 0;
  milliseconds = 0;

  /** @param {Language.WritingParts} parts */
  constructor(parts) {
    this.#parts = parts;
  }

  get speed() {
    return this.milliseconds ? (1000 * (this.ids.length - 1)) / this.milliseconds : 0;
  }

  async* [Symbol.asyncIterator]() {
    if (this.#begun) throw new EngineError('input', 'An answer can be read once', 'Ask again, or use its text');
    this.#begun = true;
    const stream = new TextStream(this.#parts.stops);
    /** @type {{ error: unknown } | null} */
    let failed = null;
    try {
      for await (const piece of this.#bytes()) {
        const shown = stream.add(piece);
        this.text += shown;
        if (shown) yield shown;
        if (!stream.stopped) continue;
        this.ended = 'stop';
        break;
      }
      this.ended ??= this.#parts.outcome;
    } catch (error) {
      this.ended = (error instanceof EngineError && FULL[error.code]) || 'aborted';
      failed = { error };
    } finally {
      // Also if the caller left the loop.
      this.ended ??= 'aborted';
    }
    const rest = stream.end();
    this.text += rest;
    if (rest) yield rest;
    if (failed) throw failed.error;
  }

  /** The bytes of one token after the other. */
  async* #bytes() {
    const { pieces: { bytes, starts }, tokens } = this.#parts;
    let { isNew } = this.#parts;
    this.#start = performance.now();
    for await (const { id, last, whole } of tokens((prompt, reused) => Object.assign(this, { promptTokens: prompt, reusedTokens: reused }))) {
      const passed = performance.now() - this.#start;
      if (this.ids.length) this.milliseconds = passed - this.firstMilliseconds;
      else this.firstMilliseconds = passed;
      this.ids.push(id);
      if (last) {
        this.ended = 'end';
        return;
      }
      const piece = bytes.subarray(starts[id] ?? 0, starts[id + 1] ?? 0);
      // A new text has no space before its first word.
      yield isNew && piece[0] === SPACE ? piece.subarray(1) : piece;
      isNew &&= !piece.length;
      if (whole) this.ended ??= 'end';
    }
  }
}

/** @implements {Language.Transcript} */
class Said extends Writing {
  language = '';

  /** @param {Language.WritingParts} parts @param {number} duration */
  constructor(parts, duration) {
    super(parts);
    this.duration = duration;
  }

  /** @param {string} code */
  hear(code) {
    this.language = code;
  }
}
