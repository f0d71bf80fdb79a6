// Text to ids, and ids to bytes, by the two assets of a bundle.
// Input: their bytes.  Output: prompts as ids, a table of the tokens' bytes. Packages of others do the work: the tokenizer, and the
// template engine, which is an interpreter without access to the page.  What runs here is untrusted and may take for ever: text_worker.js
// runs it, and text_thread.js ends that worker.

import { EngineError } from '../engine/errors.js';
import { Environment, Interpreter, Template } from '../vendor/jinja/jinja.mjs';
import { controlTokens, seal } from './control_tokens.js';
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
  const { name, template = null, texts, ends, begin = null, close = null, starts = [], pieces, speech = null } = Object(description);
  const heard = speechOf(speech);
  if ((speech && !heard) || ![name, template ?? ''].every((text) => typeof text === 'string') || Object(texts) !== texts || ![ends, starts].every(Array.isArray) || ![...ends, ...starts, begin ?? 0, close ?? 0].every(isId) || !KINDS.includes(pieces)) {
    throw new EngineError('invalid-model', `${LANGUAGE} does not have the form that docs/bundle.md describes`, HINT);
  }
  /** @type {Language.Pieces} */
  let table;
  /** @type {Language.Cut} */
  let cut;
  try {
    table = piecesOf(file, pieces);
    cut = cutter(file, pieces);
  } catch (error) {
    throw new EngineError('invalid-model', `The vocabulary cannot be read: ${error}`, HINT);
  }
  const { control, idsOf } = cut;
  return {
    description: { name, template, texts, ends, begin, close, starts, pieces, speech: heard }, pieces: table,
    encode(given) {
      const { messages, shown } = control.hidden(typeof given === 'string' ? [] : checked(given), template ?? '');
      const text = typeof given === 'string' ? given : promptOf({ template, texts }, messages);
      const ids = idsOf(shown(control.sealed(text)));
      const begun = begin === null || ids[0] === begin ? ids : [begin, ...ids];
      return close === null || begun.at(-1) === close ? begun : [...begun, close];
    },
  };
}

/** @param {unknown} id */
const isId = (id) => Number.isInteger(id) && /** @type {number} */ (id) >= 0;

/** @type {Language.SpeechOf} */
function speechOf(found) {
  const { rate, start, plain, languages = {}, tasks = {}, never = [], never_first: neverFirst = [], silence = null } = Object(found);
  if (![languages, tasks].every((table) => Object(table) === table) || ![never, neverFirst].every(Array.isArray)) return null;
  const ids = [start, plain, ...Object.values(languages), ...Object.values(tasks), ...never, ...neverFirst, silence ?? 0];
  return rate > 0 && ids.every(isId) ? { rate, start, plain, languages, tasks, never, neverFirst, silence } : null;
}

/** Reads control tokens from seals alone. @type {Language.CutterOf} */
function cutter(file, kind) {
  const { model, added_tokens: added = [] } = file;
  const special = added.filter((token) => token.special);
  const made = new Tokenizer({ ...file, added_tokens: added.map((token) => (token.special ? { ...token, content: seal(token.id), normalized: false } : token)) }, {});
  const names = new Map(special.map(({ content, id }) => [content, id]));
  const others = added.filter((token) => !token.special).map((token) => token.content);
  /** The merges of a text's words may give a name, too. @param {string} token */
  const isSpelled = (token) => names.has(token) && token !== model.unk_token;
  return {
    control: controlTokens(names, others),
    idsOf(text) {
      const { ids, tokens } = made.encode(text, { add_special_tokens: false });
      return ids.flatMap((id, at) => (isSpelled(tokens[at]) ? characters(tokens[at], kind, model) : id));
    },
  };
}

/** The ids of a name's characters or bytes. @type {Language.CharactersOf} */
function characters(name, kind, { vocab }) {
  const known = new Map(Array.isArray(vocab) ? vocab.map(([text], id) => [text, id]) : Object.entries(vocab));
  const encoder = new TextEncoder();
  const parts = kind === 'bytes' ? Array.from(encoder.encode(name), (byte) => CHARACTERS[byte]) : [...name.replaceAll(' ', '▁')].flatMap((character) => (
    known.has(character) ? [character] : Array.from(encoder.encode(character), (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`)));
  return parts.map((part) => known.get(part)).filter((id) => id !== undefined);
}

/** @param {readonly Language.Message[]} messages */
function checked(messages) {
  const wrong = [...messages].findIndex((message) => !(message?.role !== undefined && message.content !== undefined && Object.values(message).every((text) => typeof text === 'string')));
  if (wrong >= 0) throw new EngineError('input', `Message ${wrong} does not consist of texts`, "A message is { role: 'user', content: 'Hello' }");
  return messages;
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
const CHARACTERS = [...BYTES.keys()];

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
