// A JSON schema as a grammar of texts that fit it.  Input: a schema.  Output: a grammar for json_matcher.js, or an EngineError that names the keyword
// that is not supported.  The grammar may allow less than the schema, never more: JSON has one form, `{"a": 1, "b": [2, 3]}`, properties come in the
// order of the schema, further ones only if it names none; numbers have up to 15 digits.

import { EngineError } from '../engine/errors.js';
import { Grammar } from './json_matcher.js';

const ANNOTATIONS = ['$schema', '$id', '$comment', '$defs', 'definitions', 'title', 'description', 'default', 'examples', 'deprecated', 'readOnly', 'writeOnly'];
/** What limits values of a type. @type {Record<string, string[]>} */
const KEYWORDS = {
  object: ['properties', 'required', 'additionalProperties'],
  array: ['items', 'prefixItems', 'minItems', 'maxItems'],
  string: ['minLength', 'maxLength'],
  integer: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
  number: [],
  boolean: [],
  null: [],
};
/** The largest whole number that is written. */
const LARGEST = 1e15 - 1;
/** Characters of several bytes in UTF-8, as ranges of their bytes; no halves of pairs. @type {[number, number][][]} */
const WIDE = [
  [[0xc2, 0xdf], [0x80, 0xbf]],
  [[0xe0, 0xe0], [0xa0, 0xbf], [0x80, 0xbf]],
  [[0xe1, 0xec], [0x80, 0xbf], [0x80, 0xbf]],
  [[0xed, 0xed], [0x80, 0x9f], [0x80, 0xbf]],
  [[0xee, 0xef], [0x80, 0xbf], [0x80, 0xbf]],
  [[0xf0, 0xf0], [0x90, 0xbf], [0x80, 0xbf], [0x80, 0xbf]],
  [[0xf1, 0xf3], [0x80, 0xbf], [0x80, 0xbf], [0x80, 0xbf]],
  [[0xf4, 0xf4], [0x80, 0x8f], [0x80, 0xbf], [0x80, 0xbf]],
];

/** @type {Language.GrammarOf} */
export function grammarOf(schema) {
  const compiler = new Compiler(schema);
  let root;
  try {
    root = compiler.value(schema, '#');
  } catch (error) {
    if (error instanceof EngineError) throw error;
    throw refusal(error instanceof RangeError ? 'it is too deep' : String(error), '#');
  }
  if (!root) throw refusal('nothing fits it', '#');
  return { grammar: compiler.grammar, root };
}

/** @param {string} what @param {string} place */
const refusal = (what, place) => new EngineError('input', `The JSON schema is not supported: ${what}, at ${place}`.slice(0, 300),
  'docs/language-in-pages.md says which keywords an answer can follow', { place });

/** @param {unknown} value @returns {value is Record<string, any>} */
const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);

/** A value in the one form of JSON. @param {any} value @returns {string} */
function written(value) {
  if (Array.isArray(value)) return `[${value.map(written).join(', ')}]`;
  if (isObject(value)) return `{${Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}: ${written(each)}`).join(', ')}}`;
  if (!['string', 'boolean'].includes(typeof value) && !Number.isFinite(value) && value !== null) throw refusal(`the value ${value}`, '#');
  return JSON.stringify(value);
}

/** @param {any} value @param {string} type */
function isOfType(value, type) {
  if (type === 'integer') return Number.isInteger(value);
  return type === (value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value);
}

/** Parts of a grammar for parts of a schema; null where nothing fits. */
class Compiler {
  grammar = new Grammar();
  #schema;
  /** @type {Map<string, Language.Part>} */
  #references = new Map();

  /** @param {unknown} schema */
  constructor(schema) {
    this.#schema = schema;
    const { grammar: g } = this;
    this.digit = g.bytes([0x30, 0x39]);
    const whole = g.either(g.text('0'), g.sequence(g.bytes([0x31, 0x39]), g.repeat(this.digit, 0, 14)));
    const exponent = g.sequence(g.bytes([0x45, 0x45], [0x65, 0x65]), g.maybe(g.bytes([0x2b, 0x2b], [0x2d, 0x2d])), g.repeat(this.digit, 1, 2));
    this.number = g.sequence(g.maybe(g.text('-')), whole, g.maybe(g.sequence(g.text('.'), g.repeat(this.digit, 1, 15))), g.maybe(exponent));
    const escaped = g.sequence(g.text('\\'), g.either(...Array.from('"\\/bfnrt', (letter) => g.text(letter))));
    this.character = g.either(g.bytes([0x20, 0x21], [0x23, 0x5b], [0x5d, 0x7f]), escaped, ...WIDE.map((bytes) => g.sequence(...bytes.map((range) => g.bytes(range)))));
    /** @type {Language.Part | null} */
    let any = null;
    this.any = g.later(() => (any ??= /** @type {Language.Part} */ (this.value({}, '#'))));
  }

  /** @param {unknown} schema @param {string} place @returns {Language.Part | null} */
  value(schema, place) {
    if (schema === true) return this.any;
    if (schema === false) return null;
    if (!isObject(schema)) throw refusal('a schema is an object', place);
    const keys = Object.keys(schema).filter((key) => !ANNOTATIONS.includes(key) && schema[key] !== undefined);
    const [alone] = keys.filter((key) => ['$ref', 'anyOf', 'allOf'].includes(key));
    if (alone && keys.length > 1) throw refusal(`${keys.find((key) => key !== alone)} beside ${alone}`, place);
    if (alone === '$ref') return this.#reference(schema.$ref, place);
    if (alone) return this.#several(schema[alone], alone, place);
    const types = this.#types(schema, keys, place);
    if (keys.includes('enum') || keys.includes('const')) return this.#listed(schema, keys, types, place);
    return this.#either(types.map((type) => this.#typed(type, schema, place)));
  }

  /** @param {(Language.Part | null)[]} parts */
  #either(parts) {
    const found = parts.filter((part) => part !== null);
    return found.length ? this.grammar.either(...found) : null;
  }

  /** The types that the keywords leave. @param {Record<string, any>} schema @param {string[]} keys @param {string} place */
  #types({ type }, keys, place) {
    const known = Object.keys(KEYWORDS);
    const wanted = type === undefined ? known : [type].flat();
    const wrong = wanted.find((each) => !known.includes(each));
    if (wrong !== undefined) throw refusal(`the type ${wrong}`, place);
    const limits = keys.filter((key) => !['type', 'enum', 'const'].includes(key));
    for (const key of limits) {
      const owners = known.filter((each) => KEYWORDS[each].includes(key));
      if (!owners.length || (owners.includes('integer') && wanted.includes('number') && type !== undefined)) throw refusal(owners.length ? `${key} of numbers that are not integers` : key, place);
    }
    // Without a type, a keyword says which type is meant.
    return type !== undefined || !limits.length ? wanted : known.filter((each) => KEYWORDS[each].some((key) => limits.includes(key)));
  }

  /** @param {string} type @param {Record<string, any>} schema @param {string} place @returns {Language.Part | null} */
  #typed(type, schema, place) {
    const { grammar: g } = this;
    if (type === 'object') return this.#object(schema, place);
    if (type === 'array') return this.#array(schema, place);
    if (type === 'integer') return this.#integer(schema, place);
    if (type === 'number') return this.number;
    if (type === 'boolean') return g.either(g.text('true'), g.text('false'));
    if (type === 'null') return g.text('null');
    const [least, most] = this.#counts(schema, 'minLength', 'maxLength', place);
    return least > most ? null : g.sequence(g.text('"'), g.repeat(this.character, least, most), g.text('"'));
  }

  /** @param {unknown} reference @param {string} place @returns {Language.Part} */
  #reference(reference, place) {
    if (typeof reference !== 'string' || !/^#($|\/)/.test(reference)) throw refusal(`the reference ${reference}, which is not one within the schema`, place);
    const known = this.#references.get(reference);
    if (known) return known;
    let target = /** @type {any} */ (this.#schema);
    for (const name of reference.split('/').slice(1)) {
      const key = decodeURIComponent(name).replaceAll('~1', '/').replaceAll('~0', '~');
      target = Object(target) === target && Object.hasOwn(target, key) ? target[key] : undefined;
    }
    if (target === undefined) throw refusal(`the reference ${reference} to nothing`, place);
    /** @type {Language.Part | null} */
    let found = null;
    const part = this.grammar.later(() => found ?? this.grammar.either());
    this.#references.set(reference, part);
    found = this.value(target, reference);
    return part;
  }

  /** @param {unknown} schemas @param {string} keyword @param {string} place */
  #several(schemas, keyword, place) {
    if (!Array.isArray(schemas) || !schemas.length) throw refusal(`${keyword} without schemas`, place);
    if (keyword === 'allOf' && schemas.length > 1) throw refusal('allOf of several schemas', place);
    return this.#either(schemas.map((schema, at) => this.value(schema, `${place}/${keyword}/${at}`)));
  }

  /** @param {Record<string, any>} schema @param {string[]} keys @param {string[]} types @param {string} place */
  #listed(schema, keys, types, place) {
    const more = keys.find((key) => !['type', 'enum', 'const'].includes(key));
    if (more) throw refusal(`${more} beside ${keys.includes('enum') ? 'enum' : 'const'}`, place);
    if (keys.includes('enum') && !Array.isArray(schema.enum)) throw refusal('enum without values', place);
    const texts = (keys.includes('enum') ? schema.enum : [schema.const]).filter((/** @type {any} */ value) => types.some((type) => isOfType(value, type))).map(written);
    const wanted = keys.includes('enum') && keys.includes('const') ? texts.filter((/** @type {string} */ text) => text === written(schema.const)) : texts;
    return this.#either(wanted.map((/** @type {string} */ text) => this.grammar.text(text)));
  }

  /** @param {Record<string, any>} schema @param {string} place @returns {Language.Part | null} */
  #object({ properties = {}, required = [], additionalProperties: others = true }, place) {
    const { grammar: g } = this;
    if (!isObject(properties)) throw refusal('properties that are not an object', place);
    if (!Array.isArray(required) || !required.every((name) => typeof name === 'string')) throw refusal('required without names', place);
    const named = Object.entries(properties).map(([name, schema]) => /** @type {const} */ ([name, this.value(schema, `${place}/properties/${name}`)]));
    const rest = this.value(others, `${place}/additionalProperties`);
    named.push(...[...new Set(required)].filter((name) => !Object.hasOwn(properties, name)).map((name) => /** @type {const} */ ([name, rest])));
    if (named.some(([name, value]) => !value && required.includes(name))) return null;
    const pairs = named.flatMap(([name, value]) => (value ? [{ part: g.sequence(g.text(`${JSON.stringify(name)}: `), value), isOptional: !required.includes(name) }] : []));
    if (!named.length && rest) {
      const pair = g.sequence(g.text('"'), g.repeat(this.character, 0, Infinity), g.text('": '), rest);
      return g.sequence(g.text('{'), g.maybe(this.#list(pair, 1, Infinity)), g.text('}'));
    }
    let [first, next] = [g.nothing, g.nothing];
    for (const { part, isOptional } of pairs.reverse()) {
      const [begun, more] = [g.sequence(part, next), g.sequence(g.text(', '), part, next)];
      [first, next] = isOptional ? [g.either(begun, first), g.either(more, next)] : [begun, more];
    }
    return g.sequence(g.text('{'), first, g.text('}'));
  }

  /** @param {Record<string, any>} schema @param {string} place @returns {Language.Part | null} */
  #array(schema, place) {
    const { grammar: g } = this;
    const { items = true, prefixItems: prefix = [] } = schema;
    const [least, most] = this.#counts(schema, 'minItems', 'maxItems', place);
    if (!Array.isArray(prefix)) throw refusal('prefixItems without schemas', place);
    if (least > most) return null;
    const each = prefix.map((item, at) => this.value(item, `${place}/prefixItems/${at}`)).slice(0, most);
    const rest = this.value(items, `${place}/items`);
    const [few, many] = [Math.max(0, least - each.length), most - each.length];
    /** What follows the items so far. @type {Language.Part | null} */
    let after = !rest || !many ? (few ? null : g.nothing) : g.repeat(g.sequence(each.length ? g.text(', ') : g.nothing, rest), few, many);
    if (!each.length && rest && many) after = few ? this.#list(rest, few, many) : g.maybe(this.#list(rest, 1, many));
    for (let at = each.length - 1; at >= 0; at--) {
      const item = each[at];
      const more = item && after ? g.sequence(g.text(at ? ', ' : ''), item, after) : null;
      after = this.#either([more, at >= least ? g.nothing : null]);
    }
    return after && g.sequence(g.text('['), after, g.text(']'));
  }

  /** Separated by commas. @param {Language.Part} part @param {number} least at least 1 @param {number} most */
  #list(part, least, most) {
    const { grammar: g } = this;
    return g.sequence(part, g.repeat(g.sequence(g.text(', '), part), least - 1, most - 1));
  }

  /** @param {Record<string, any>} schema @param {string} place @returns {Language.Part | null} */
  #integer({ minimum = -LARGEST, maximum = LARGEST, exclusiveMinimum = -Infinity, exclusiveMaximum = Infinity }, place) {
    if (![minimum, maximum, exclusiveMinimum, exclusiveMaximum].every((limit) => typeof limit === 'number')) throw refusal('a limit that is not a number', place);
    const low = Math.max(-LARGEST, Math.ceil(minimum), Math.floor(exclusiveMinimum) + 1);
    const high = Math.min(LARGEST, Math.floor(maximum), Math.ceil(exclusiveMaximum) - 1);
    const negative = this.#either(this.#wholes(Math.max(1, -high), -low));
    return this.#either([negative && this.grammar.sequence(this.grammar.text('-'), negative), ...this.#wholes(Math.max(0, low), high)]);
  }

  /** Whole numbers from `low`, which is not negative, to `high`. @param {number} low @param {number} high */
  #wholes(low, high) {
    const found = [];
    for (let digits = 1; digits <= 15; digits++) {
      const [from, to] = [Math.max(low, digits === 1 ? 0 : 10 ** (digits - 1)), Math.min(high, 10 ** digits - 1)];
      if (from <= to) found.push(this.#between(String(from), String(to)));
    }
    return found;
  }

  /** Numbers of the same length. @param {string} low @param {string} high @returns {Language.Part} */
  #between(low, high) {
    const { grammar: g } = this;
    if (!low) return g.nothing;
    if (/^0*$/.test(low) && /^9*$/.test(high)) return g.sequence(...Array.from(low, () => this.digit));
    const [first, last, length] = [Number(low[0]), Number(high[0]), low.length - 1];
    /** @param {number} from @param {number} to @param {Language.Part} rest */
    const digits = (from, to, rest) => (from > to ? [] : [g.sequence(g.bytes([0x30 + from, 0x30 + to]), rest)]);
    if (first === last) return g.sequence(g.text(low[0]), this.#between(low.slice(1), high.slice(1)));
    return g.either(...digits(first, first, this.#between(low.slice(1), '9'.repeat(length))), ...digits(first + 1, last - 1, this.#between('0'.repeat(length), '9'.repeat(length))),
      ...digits(last, last, this.#between('0'.repeat(length), high.slice(1))));
  }

  /** @param {Record<string, any>} schema @param {string} least @param {string} most @param {string} place */
  #counts(schema, least, most, place) {
    const found = [schema[least] ?? 0, schema[most] ?? Infinity];
    if (!found.every((count) => count >= 0 && (count === Infinity || Number.isInteger(count)))) throw refusal(`${least} or ${most} that is not a count`, place);
    return found;
  }
}
