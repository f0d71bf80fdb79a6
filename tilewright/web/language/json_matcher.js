// Follows a text byte by byte as a grammar wants it, and tells which tokens may come next.  Input: a grammar, which json_schema.js makes of a JSON
// schema; the bytes of all tokens.  Output: masks.  A state is a set of places in the grammar, each with what must follow it.  States and their
// successors are made when a text first comes to them, and kept.

import { EngineError } from '../engine/errors.js';

/** Parts of a grammar, states and masks that are kept. */
const [MOST_PARTS, MOST_STATES, MOST_MASKS] = [200_000, 20_000, 32];

/** Makes parts of a grammar.  Equal parts are one object, so that places in the grammar can be compared. */
export class Grammar {
  /** @type {Map<string, Language.Part>} */
  #known = new Map();
  /** What has no byte. */
  nothing = this.#part('', { kind: 'nothing' });

  /** One byte within ranges. @param {...readonly [number, number]} ranges */
  bytes(...ranges) {
    return this.#part(`b${ranges.join()}`, { kind: 'bytes', ranges });
  }

  /** @param {string} text */
  text(text) {
    return this.sequence(...Array.from(new TextEncoder().encode(text), (byte) => this.bytes([byte, byte])));
  }

  /** @param {...Language.Part} parts @returns {Language.Part} */
  sequence(...parts) {
    return parts.reduceRight((rest, part) => (rest === this.nothing ? part : this.#part(`s${part.id},${rest.id}`, { kind: 'pair', part, rest })), this.nothing);
  }

  /** @param {...Language.Part} parts @returns {Language.Part} */
  either(...parts) {
    const each = [...new Set(parts)];
    return each.length === 1 ? each[0] : this.#part(`e${each.map(({ id }) => id)}`, { kind: 'either', parts: each });
  }

  /** `least` to `most` times, which may be Infinity. @param {Language.Part} part @param {number} least @param {number} most @returns {Language.Part} */
  repeat(part, least, most) {
    return this.#part(`r${part.id},${least},${most}`, { kind: 'repeat', part, least, most });
  }

  /** @param {Language.Part} part */
  maybe(part) {
    return this.repeat(part, 0, 1);
  }

  /** A part that may contain itself. @param {() => Language.Part} made @returns {Language.Part} */
  later(made) {
    return this.#part(`l${this.#known.size}`, { kind: 'later', made });
  }

  /** @param {string} key @param {any} what @returns {Language.Part} */
  #part(key, what) {
    const known = this.#known.get(key);
    if (known) return known;
    if (this.#known.size >= MOST_PARTS) throw new EngineError('input', 'The JSON schema is too large', 'Use a simpler schema', { limit: MOST_PARTS });
    const part = { id: this.#known.size, ...what };
    this.#known.set(key, part);
    return part;
  }
}

/** Follows texts of one grammar. */
export class Automaton {
  #grammar;
  /** Lists of parts that must follow, by their first part and the rest. @type {Map<string, Language.Following>} */
  #lists = new Map();
  /** @type {Map<string, Language.TextState>} */
  #states = new Map();
  /** @type {Language.Following} */
  #end = { id: 0, part: null, rest: null };

  /** @param {Grammar} grammar @param {Language.Part} root */
  constructor(grammar, root) {
    this.#grammar = grammar;
    this.start = this.#state([{ part: root, rest: this.#end, id: -1 }]);
  }

  /** The state after one more byte; null if the text cannot go on so. @param {Language.TextState} state @param {number} byte */
  step(state, byte) {
    const known = state.after[byte];
    if (known !== undefined) return known;
    const follow = state.places.filter(({ part: { ranges } }) => ranges.some(([low, high]) => byte >= low && byte <= high)).map(({ rest }) => rest);
    return (state.after[byte] = follow.length ? this.#state(follow) : null);
  }

  /** @param {Language.Following[]} follow */
  #state(follow) {
    /** @type {Map<string, Language.Place>} */
    const places = new Map();
    let ends = false;
    const seen = new Set();
    /** @param {Language.Following} list */
    const open = ({ part, rest }) => {
      if (part && rest) enter(part, rest);
      else ends = true;
    };
    /** @param {Language.Part} part @param {Language.Following} rest */
    const enter = (part, rest) => {
      const key = `${part.id},${rest.id}`;
      if (seen.has(key)) return;
      seen.add(key);
      if (part.kind === 'bytes') places.set(key, { part, rest });
      else if (part.kind === 'nothing') open(rest);
      else if (part.kind === 'pair') enter(part.part, this.#list(part.rest, rest));
      else if (part.kind === 'either') for (const each of part.parts) enter(each, rest);
      else if (part.kind === 'later') enter(part.made(), rest);
      else {
        const { least, most } = part;
        if (!least) open(rest);
        if (most) enter(part.part, this.#list(this.#grammar.repeat(part.part, Math.max(0, least - 1), most - 1), rest));
      }
    };
    for (const list of follow) open(list);
    return this.#kept([...places.keys()].sort().join(' ') + (ends ? '.' : ''), { places: [...places.values()], ends, after: [] });
  }

  /** @param {string} key @param {Language.TextState} state */
  #kept(key, state) {
    const known = this.#states.get(key);
    if (known) return known;
    if (this.#states.size >= MOST_STATES) this.#states.clear();
    this.#states.set(key, state);
    return state;
  }

  /** @param {Language.Part} part @param {Language.Following} rest @returns {Language.Following} */
  #list(part, rest) {
    const key = `${part.id},${rest.id}`;
    const known = this.#lists.get(key);
    if (known) return known;
    const list = { id: this.#lists.size + 1, part, rest };
    this.#lists.set(key, list);
    return list;
  }
}

/** Tokens in the order of their bytes, so that those with the same beginning are followed together. @type {Language.TokensInOrder} */
export function tokensInOrder({ bytes, starts }) {
  /** @param {number} id */
  const piece = (id) => bytes.subarray(starts[id], starts[id + 1]);
  /** @param {Uint8Array} one @param {Uint8Array} other */
  const shared = (one, other) => {
    let at = 0;
    while (at < one.length && at < other.length && one[at] === other[at]) at++;
    return at;
  };
  const ids = Array.from({ length: starts.length - 1 }, (_, id) => id).filter((id) => starts[id] < starts[id + 1]);
  const order = Uint32Array.from(ids.sort((a, b) => {
    const [one, other] = [piece(a), piece(b)];
    const at = shared(one, other);
    return (one[at] ?? -1) - (other[at] ?? -1);
  }));
  return { order, common: Uint32Array.from(order, (id, at) => (at ? shared(piece(id), piece(order[at - 1])) : 0)), bytes, starts };
}

/** Follows one answer. */
export class JsonMatcher {
  #automaton;
  #tokens;
  #ends;
  #state;
  /** @type {Map<Language.TextState, Uint8Array>} */
  #masks = new Map();

  /** @param {Automaton} automaton @param {Language.OrderedTokens} tokens @param {readonly number[]} ends tokens that end an answer */
  constructor(automaton, tokens, ends) {
    this.#automaton = automaton;
    this.#tokens = tokens;
    this.#ends = ends;
    this.#state = automaton.start;
  }

  /** Whether the answer is whole, and nothing can follow. */
  get isComplete() {
    return this.#state.ends && !this.#state.places.length;
  }

  /** Ones for the tokens that may come next. */
  allowed() {
    const known = this.#masks.get(this.#state);
    if (known) return known;
    const mask = this.#mask();
    if (this.#masks.size >= MOST_MASKS) this.#masks.clear();
    this.#masks.set(this.#state, mask);
    return mask;
  }

  /** A token that was allowed, and is not an end. @param {number} id */
  take(id) {
    const { bytes, starts } = this.#tokens;
    for (const byte of bytes.subarray(starts[id], starts[id + 1])) this.#state = /** @type {Language.TextState} */ (this.#automaton.step(this.#state, byte));
  }

  #mask() {
    const { order, common, bytes, starts } = this.#tokens;
    const mask = new Uint8Array(starts.length - 1);
    const path = [this.#state];
    let dead = Infinity;
    let count = 0;
    for (let n = 0; n < order.length; n++) {
      if (common[n] > dead) continue;
      dead = Infinity;
      const [first, end] = [starts[order[n]], starts[order[n] + 1]];
      for (let at = common[n]; first + at < end; at++) {
        const next = this.#automaton.step(path[at], bytes[first + at]);
        if (!next) {
          dead = at;
          break;
        }
        path[at + 1] = next;
      }
      if (dead === Infinity) count += mask[order[n]] = 1;
    }
    if (this.#state.ends) for (const end of this.#ends) count += mask[end] = 1;
    if (!count) throw new EngineError('input', 'The answer cannot go on as the schema wants: the vocabulary has no token that fits', 'Use a simpler schema, which JSON of some length fits');
    return mask;
  }
}
