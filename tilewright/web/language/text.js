// Text to ids, and ids to bytes, by the two assets of a bundle.  Input: their bytes.  Output: prompts as ids, a table of the tokens' bytes.
// Packages of others do the work: the tokenizer, and the template engine, which is an interpreter without access to the page.  What runs here
// is untrusted and may take for ever: text_worker.js runs it, and text_thread.js ends that worker.

import { EngineError } from '../engine/errors.js';
import { Environment, Interpreter, Template } from '../vendor/jinja/jinja.mjs';
import { Tokenizer } from '../vendor/tokenizers/tokenizers.min.mjs';

export const [TOKENIZER, LANGUAGE] = ['tokenizer.json', 'language.json'];

const HINT = 'Build the bundle again, or use another file of the model';
/** Elements of a range that a template may make. */
const MOST_NUMBERS = 1e6;
const KINDS = ['bytes', 'spaces'];
/** A token for a byte, in SentencePiece's vocabularies. */
const BYTE = /^<0x([0-9A-Fa-f]{2})>$/;

/** The template itself refuses the messages. */
class Refused extends Error {}

/** @type {Language.OpenText} */
export function openText({ tokenizer, language }) {
  const [file, description] = [parsed(tokenizer, TOKENIZER), parsed(language, LANGUAGE)];
  const { name, template = null, texts, ends, begin = null, pieces } = Object(description);
  const isId = (/** @type {unknown} */ id) => Number.isInteger(id) && /** @type {number} */ (id) >= 0;
  if (![name, template ?? ''].every((text) => typeof text === 'string') || Object(texts) !== texts || !Array.isArray(ends) || ![...ends, begin ?? 0].every(isId) || !KINDS.includes(pieces)) {
    throw new EngineError('invalid-model', `${LANGUAGE} does not have the form of docs/language-models.md`, HINT);
  }
  /** @type {Tokenizer} */
  let made;
  /** @type {Language.Pieces} */
  let table;
  try {
    made = new Tokenizer(file, {});
    table = piecesOf(file, pieces);
  } catch (error) {
    throw new EngineError('invalid-model', `The vocabulary cannot be read: ${error}`, HINT);
  }
  return {
    description: { name, template, texts, ends, begin, pieces }, pieces: table,
    encode(given) {
      const text = typeof given === 'string' ? given : promptOf({ template, texts }, given);
      const { ids } = made.encode(text, { add_special_tokens: false });
      return begin === null || ids[0] === begin ? ids : [begin, ...ids];
    },
  };
}

/** @param {ArrayBuffer} bytes @param {string} name */
function parsed(bytes, name) {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (error) {
    throw new EngineError('invalid-model', `${name} cannot be read: ${error}`, HINT);
  }
}

/** The text of a chat, up to where the answer begins. @type {Language.PromptOf} */
function promptOf({ template, texts }, messages) {
  if (template === null) throw new EngineError('input', 'The model has no chat template', 'Use complete() instead of chat()');
  try {
    const environment = new Environment();
    for (const [name, value] of Object.entries({ ...GLOBALS, ...texts, messages, add_generation_prompt: true })) environment.set(name, value);
    return new Interpreter(environment).run(new Template(template).parsed).value;
  } catch (error) {
    if (error instanceof Refused) {
      throw new EngineError('input', `The model's chat template refuses these messages: ${error.message}`, "Begin with a user's message, and let user and assistant take turns");
    }
    throw new EngineError('invalid-model', `The model's chat template fails: ${/** @type {any} */ (error)?.message ?? error}`, 'Use complete() instead of chat(), or another file of the model');
  }
}

/** What templates find, beside the messages. @type {Record<string, unknown>} */
const GLOBALS = {
  true: true, false: false, none: null, True: true, False: false, None: null,
  raise_exception(/** @type {string} */ message) {
    throw new Refused(message);
  },
  range(/** @type {number} */ first, /** @type {number} */ end, step = 1) {
    const [from, to] = end === undefined ? [0, first] : [first, end];
    const length = Math.max(0, Math.ceil((to - from) / step));
    if (!(length <= MOST_NUMBERS)) throw new Error(`a range of ${length} numbers`);
    return Array.from({ length }, (_, at) => from + at * step);
  },
  strftime_now(/** @type {string} */ form) {
    const now = new Date();
    const month = (/** @type {'long' | 'short'} */ kind) => now.toLocaleString('en', { month: kind });
    const two = (/** @type {number} */ number) => String(number).padStart(2, '0');
    /** @type {Record<string, string>} */
    const parts = {
      '%Y': String(now.getFullYear()), '%m': two(now.getMonth() + 1), '%d': two(now.getDate()), '%H': two(now.getHours()), '%M': two(now.getMinutes()), '%S': two(now.getSeconds()),
      '%B': month('long'), '%b': month('short'), '%%': '%',
    };
    return form.replace(/%./g, (part) => parts[part] ?? part);
  },
};

/** Control tokens have no bytes. @type {Language.PiecesOf} */
function piecesOf({ model: { vocab }, added_tokens: added = [] }, kind) {
  /** @type {[string, number][]} */
  const listed = Array.isArray(vocab) ? vocab.map(([text], id) => [text, id]) : Object.entries(vocab);
  const size = [...listed.map(([, id]) => id), ...added.map(({ id }) => id)].reduce((most, id) => Math.max(most, id + 1), 0);
  const encoder = new TextEncoder();
  /** @type {(Uint8Array | undefined)[]} */
  const found = new Array(size);
  for (const [text, id] of listed) found[id] = kind === 'bytes' ? byteLevel(text, encoder) : sentencePiece(text, encoder);
  for (const { id, content, special } of added) found[id] = special ? undefined : kind === 'bytes' ? encoder.encode(content) : sentencePiece(content, encoder);
  const starts = new Uint32Array(size + 1);
  found.forEach((piece, id) => (starts[id + 1] = piece?.length ?? 0));
  for (let id = 0; id < size; id++) starts[id + 1] += starts[id];
  const bytes = new Uint8Array(starts[size]);
  found.forEach((piece, id) => piece && bytes.set(piece, starts[id]));
  return { bytes, starts };
}

/** Printable bytes are themselves, the others follow from U+0100 on, as GPT-2 has it. @type {Map<string, number>} */
const BYTES = new Map();
for (let byte = 0, others = 0x100; byte < 0x100; byte++) {
  const printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  BYTES.set(String.fromCharCode(printable ? byte : others++), byte);
}

/** @param {string} text @param {TextEncoder} encoder */
function byteLevel(text, encoder) {
  const bytes = Array.from(text, (character) => BYTES.get(character));
  return bytes.includes(undefined) ? encoder.encode(text) : Uint8Array.from(/** @type {number[]} */ (bytes));
}

/** @param {string} text @param {TextEncoder} encoder */
function sentencePiece(text, encoder) {
  const byte = BYTE.exec(text);
  return byte ? Uint8Array.of(parseInt(byte[1], 16)) : encoder.encode(text.replaceAll('▁', ' '));
}
