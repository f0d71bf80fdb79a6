// Parses and validates the files of docs/bundle.md.
// Input: bytes of bundle.json or of a manifest.  Output: the parsed object, or a typed error.

import { EngineError } from './errors.js';
import { arrayOf, elementsOf } from './tensors.js';

export const FORMAT = 3;

const REBUILD = 'Build the bundle again';
const FILE_REF = { file: 'string', digest: 'string', bytes: 'number' };
const MANIFEST = {
  name: 'string', dims: 'object', extents: 'object', inputs: 'object', outputs: 'object', states: 'object', weights: 'object',
  kernels: 'object', plans: 'object', targets: 'object', assets: 'object',
};

/** @type {T.ReadPointer} */
export function readPointer(bytes, place) {
  const value = parse(bytes, place, { tool: 'string', manifest: 'object' });
  requireKeys(value.manifest, FILE_REF, place);
  return value;
}

/** @type {T.ReadManifest} */
export const readManifest = (bytes, place) => parse(bytes, place, MANIFEST);

/** A target's section of the manifest. @type {T.SectionOf} */
export function sectionOf(manifest, target) {
  const section = manifest.targets[target];
  if (section) return section;
  throw new EngineError('unsupported-host', `The bundle has no code for the target ${target}`, `Build it with --target ${target}`,
    { target, known: Object.keys(manifest.targets) });
}

/** Plans and states with their addresses in a target's memory. @type {T.PlaceAll} */
export function placed(manifest, places, states) {
  const plans = manifest.plans.map(({ dims, steps, inputs, outputs }, at) => ({
    dims, steps, extents: manifest.extents, address: places[at].address,
    inputs: listed(manifest.inputs, inputs, places[at].inputs),
    outputs: listed(manifest.outputs, outputs, places[at].outputs),
  }));
  return { plans, states: listed(manifest.states, manifest.states.map(({ shape }) => shape), states) };
}

/** @type {T.PlaceEach} */
const listed = (infos, shapes, addresses) => infos.map(({ name, dtype }, at) => (
  { name, dtype, shape: shapes[at], address: addresses[at], bytes: elementsOf(shapes[at]) * arrayOf(dtype).BYTES_PER_ELEMENT }
));

/** @type {T.NeededFiles} */
export function neededFiles({ driver }, { code, plans }, shards) {
  const files = [driver, code, ...plans, ...shards];
  return [...new Map(files.map((ref) => [ref.file, ref])).values()];
}

/** @type {T.Parse} */
function parse(bytes, place, kinds) {
  let value;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (error) {
    throw new EngineError('bundle-corrupt', `${place} is not valid JSON: ${error}`,
      'Check that the URL names a bundle, not an HTML page', { path: place });
  }
  // Checked first: another format version may change every other key.
  const found = value?.format;
  if (!Number.isInteger(found)) throw new EngineError('bundle-corrupt', `${place} has no format version`, REBUILD, { path: place });
  if (found !== FORMAT) {
    throw new EngineError('bundle-version', `The bundle has format ${found}, this engine reads ${FORMAT}`,
      found < FORMAT ? `${REBUILD} with this version of Tilewright` : 'Update the engine, or clear the cache',
      { path: place, found, expected: FORMAT, tool: value.tool });
  }
  requireKeys(value, kinds, place);
  return value;
}

/** @type {T.RequireKeys} */
function requireKeys(value, kinds, place) {
  for (const [key, kind] of Object.entries(kinds)) {
    const found = value[key] === null ? 'null' : typeof value[key];
    if (found === kind) continue;
    throw new EngineError('bundle-corrupt', `${place} does not follow the bundle format: '${key}' must be a ${kind}, found ${found}`, REBUILD, { path: place, key });
  }
}
