// The address of a bundle, and its files as docs/bundle.md describes them: parsed and validated.
// Input: a URL from the page; bytes of bundle.json or of a manifest.  Output: a URL, the parsed object, or a typed error.

import { EngineError } from './errors.js';
import { arrayOf, elementsOf, inMemory, isDeclared } from './tensors.js';

/**
 * The URL of a bundle's folder: its path ends with a slash, and its query stays, which may be a signature for all files.
 * @param {string | URL} given
 */
export function folderOf(given) {
  const base = globalThis.document?.baseURI ?? globalThis.location?.href;
  const url = URL.canParse(given, base) ? new URL(given, base) : null;
  // Schemes such as blob: and data: have no folders.
  if (!url?.pathname.startsWith('/')) throw new EngineError('input', `'${given}' is not the URL of a folder`, 'Give the URL of a bundle');
  url.hash = '';
  url.pathname = url.pathname.replace(/\/(bundle\.json)?$|$/, '/');
  return url.href;
}

const FORMAT = 4;

/** @param {unknown} value */
const text = (value) => typeof value === 'string';

/** @param {any} value */
export const count = (value) => Number.isSafeInteger(value) && value >= 0;

const REBUILD = 'Build the bundle again';
/** `Object` accepts anything: `placed` checks the sizes. */
const TENSORS = [{ name: text, dtype: isDeclared, shape: [Object] }];
const POINTER = { manifest: {} };
// A file reference needs few checks: the digest identifies the file, and its length is checked where memory is reserved.
const MANIFEST = {
  dims: {}, extents: [text], inputs: TENSORS, outputs: TENSORS, states: TENSORS,
  weights: { shards: [{}], tensors: {} },
  plans: [{ dims: {}, steps: [{}] }], kernels: {}, targets: {}, assets: [{ name: text }],
};

/** @type {T.ReadPointer} */
export const readPointer = (bytes, place) => parse(bytes, place, POINTER);

/** @type {T.ReadManifest} */
export const readManifest = (bytes, place) => parse(bytes, place, MANIFEST);

/** @type {T.Corrupt} */
export const corrupt = (...parts) => new EngineError('bundle-corrupt', ...parts);

/**
 * Returns the value; throws `bundle-corrupt` unless it has the form: a predicate, a list of one form for all elements, or an object with
 * forms by key.  Other keys are allowed.
 * @type {T.RequireForm}
 */
export function requireForm(value, form, path, key = '') {
  const many = Array.isArray(form);
  if (form instanceof Function ? !form(value) : Object(value) !== value || many !== Array.isArray(value)) {
    throw corrupt(`${path} is malformed: ${key}`, REBUILD, { path, key });
  }
  // A predicate has no keys.
  for (const name in many ? value : form) requireForm(value[name], form[many ? 0 : name], path, name);
  return value;
}

/** Checks numbers that must be non-negative integers in a valid bundle: aligned addresses, remaining memory. @type {T.RequireCounts} */
export const requireCounts = (place, ...numbers) => requireForm(numbers, [count], place);

/** A target's section of the manifest. @type {T.SectionOf} */
export function sectionOf(manifest, target, form) {
  const section = manifest.targets[target];
  if (section) return requireForm(section, form, target);
  throw new EngineError('unsupported-host', `The bundle has no code for the target ${target}`, `Build it with --target ${target}`,
    { target, known: Object.keys(manifest.targets) });
}

/** Plans and states with their addresses in a target's memory. @type {T.PlaceAll} */
export function placed(manifest, { plans: places, facts: { memory, states, compact, block = 0 } }) {
  const { growth, plans, states: kept } = manifest;
  requireCounts('plans', plans.length - 1, places.length - plans.length);
  const grown = growth && { rows: growth.rows, block, most: Math.ceil(Number(kept[0]?.shape.at(-2)) / growth.rows), behind: 0 };
  /** @type {T.PlaceEach} */
  const listed = (infos, addresses, dims, halves, within) => infos.map(({ name, dtype: declared, shape: open }, at) => {
    const dtype = inMemory(declared);
    const shape = /** @type {number[]} */ (open.map((size) => (count(size) ? size : dims[size])));
    const compact = halves && dtype === 'f32', each = compact ? 2 : arrayOf(dtype).BYTES_PER_ELEMENT;
    const address = addresses[at], bytes = elementsOf(within ? shape.with(-2, within.rows) : shape) * each;
    requireCounts(name, ...shape, address / each, (within ? block : memory.bytes) - address - bytes);
    if (within) requireCounts(name, within.rows - 1, within.most - 1, within.most * within.rows - /** @type {number} */ (shape.at(-2)));
    return { name, dtype, declared, shape, address, bytes, compact, growth: within };
  });
  return {
    plans: plans.map(({ dims, steps }, at) => {
      const { address, inputs: from, outputs } = places[at], inputs = listed(manifest.inputs, from, dims);
      const last = inputs.find(({ name, dtype }) => name === growth?.input && dtype === 'i32')?.address ?? -1, least = dims[growth?.dim ?? ''];
      if (growth) requireCounts('growth', last, least);
      return { dims, steps, extents: manifest.extents, address, inputs, outputs: listed(manifest.outputs, outputs, dims), growth: grown && { last, least, of: grown } };
    }),
    states: listed(kept, states, {}, compact, grown),
    growth: grown,
  };
}

/** @type {T.ReadJson} */
export function readJson(bytes, path) {
  try {
    // Refuses JSON that is nested too deeply to be sent to the page.
    return structuredClone(JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes)));
  } catch (error) {
    throw corrupt(`${path} is not valid JSON: ${error}`, 'Does the URL name a bundle?', { path });
  }
}

/** @type {T.Parse} */
function parse(bytes, path, form) {
  const value = readJson(bytes, path);
  // Checked first: another format version may change every other key.
  const { format: found } = requireForm(value, { format: count }, path);
  if (found !== FORMAT) {
    throw new EngineError('bundle-version', `The bundle has format ${found}, this engine reads ${FORMAT}`,
      found < FORMAT ? `${REBUILD} with this version of Tilewright` : 'Update the engine, or clear the cache',
      { path, found, expected: FORMAT, tool: value.tool });
  }
  return requireForm(value, form, path);
}

/** @type {T.Json} */
export const json = async (files, ref) => readJson(await files.bytes(ref), ref.file);
