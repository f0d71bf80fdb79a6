// Names of control tokens in texts: those of a chat template mean the tokens, a user's are words.  Input: messages, and the prompt that a template
// makes of them.  Output: texts in which both kinds differ.  The steps are those of tilewright/language/control_tokens.py, which says why.

import { EngineError } from '../engine/errors.js';

/** Around the number of a seal: code points that Unicode reserves for use inside of programs. */
const [OPEN, CLOSE] = ['\ufdd0', '\ufdd1'];
const SEAL = new RegExp(`${OPEN}[0-9]+${CLOSE}`);
/** First and last code points of stand-ins: Unicode's areas for private use. */
const PRIVATE = [[0xe000, 0xf8ff], [0xf0000, 0xffffd], [0x100000, 0x10fffd]];

/** What the tokenizer reads as this control token. @param {number} id */
export const seal = (id) => OPEN + id + CLOSE;

/** Names of control tokens, and other texts that the tokenizer keeps whole. @type {Language.ControlTokensOf} */
export function controlTokens(names, words) {
  const seals = new Map([...words.map((word) => /** @type {const} */ ([word, word])), ...Array.from(names, ([name, id]) => /** @type {const} */ ([name, seal(id)]))]);
  seals.delete('');
  const head = Math.min(...Array.from(seals.keys(), (text) => text.length));
  /** Lengths of texts that begin so, the longest first. @type {Map<string, number[]>} */
  const lengths = new Map();
  for (const text of [...seals.keys()].sort((one, other) => other.length - one.length)) {
    const known = lengths.get(text.slice(0, head)) ?? [];
    lengths.set(text.slice(0, head), known.includes(text.length) ? known : [...known, text.length]);
  }
  const firsts = new Set(Array.from(seals.keys(), (text) => text[0]));

  /** Each place where names or words begin, with each of them, the longest one first. @param {string} text @returns {Generator<[number, string]>} */
  function* found(text) {
    for (let at = 0; at < text.length; at++) {
      if (!firsts.has(text[at])) continue;
      for (const length of lengths.get(text.slice(at, at + head)) ?? []) {
        const name = text.slice(at, at + length);
        if (seals.has(name)) yield [at, name];
      }
    }
  }

  return {
    sealed(text) {
      if (SEAL.test(text)) {
        throw new EngineError('input', 'The text has marks that only this program writes: U+FDD0, a number and U+FDD1', 'Remove them: Unicode does not use these characters in texts');
      }
      const parts = [];
      let done = 0;
      for (const [at, name] of found(text)) {
        if (at < done) continue;
        parts.push(text.slice(done, at), seals.get(name));
        done = at + name.length;
      }
      return parts.join('') + text.slice(done);
    },
    hidden(messages, template) {
      const texts = messages.flatMap((message) => Object.values(message));
      const places = new Map(texts.map((text) => [text, Array.from(found(text)).filter(([, name]) => names.has(name)).map(([at]) => at)]));
      const wanted = [...new Set(Array.from(places, ([text, starts]) => starts.map((at) => text[at])).flat())];
      const used = new Set([template, ...texts].flatMap((text) => wanted.length ? [...text] : []));
      const free = freeCharacters(used, wanted.length);
      /** @param {string} text */
      const hide = (text) => {
        const letters = text.split('');
        for (const at of places.get(text) ?? []) letters[at] = free[wanted.indexOf(text[at])];
        return letters.join('');
      };
      return {
        messages: messages.map((message) => ({ ...message, ...Object.fromEntries(Object.entries(message).map(([key, text]) => [key, hide(text)])) })),
        shown: (text) => free.reduce((whole, standIn, at) => whole.replaceAll(standIn, () => wanted[at]), text),
      };
    },
  };
}

/** Characters for private use that are not used. @param {Set<string>} used @param {number} count */
function freeCharacters(used, count) {
  const free = [];
  for (const [first, last] of PRIVATE) {
    for (let code = first; code <= last && free.length < count; code++) if (!used.has(String.fromCodePoint(code))) free.push(String.fromCodePoint(code));
  }
  if (free.length < count) throw new EngineError('input', 'The messages have all characters that Unicode has for private use', 'Remove some of them');
  return free;
}
