// The bundle format as a check: the JavaScript side of docs/bundle.md.
// Input: bytes of bundle.json or of a manifest.  Output: their value.

import { EngineError } from './errors.js';

export const FORMAT = 2;

const REBUILD = 'Build the bundle again';
const FILE_REF = { file: 'string', digest: 'string', bytes: 'number' };
const MANIFEST = {
  name: 'string', dims: 'object', inputs: 'object', outputs: 'object', memory: 'object', weights: 'object',
  driver: 'object', code: 'object', slots: 'number', plans: 'object', assets: 'object',
};

/** @type {T.ReadPointer} */
export function readPointer(bytes, place) {
  const value = parse(bytes, place, { tool: 'string', manifest: 'object' });
  requireKeys(value.manifest, FILE_REF, place);
  return value;
}

/** @type {T.ReadManifest} */
export const readManifest = (bytes, place) => parse(bytes, place, MANIFEST);

/** @type {T.NeededFiles} */
export function neededFiles(manifest, code) {
  const files = [manifest.driver, code, ...code.images, ...manifest.weights.shards];
  return [...new Map(files.map((ref) => [ref.file, ref])).values()];
}

/** @type {T.Parse} */
function parse(bytes, place, kinds) {
  let value;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (error) {
    throw new EngineError('bundle-corrupt', `${place} is no JSON: ${error}`,
      'Check that the URL names a bundle and that the server does not answer with a page', { path: place });
  }
  // First: nothing else of another version may be relied on.
  const found = value?.format;
  if (!Number.isInteger(found)) throw new EngineError('bundle-corrupt', `${place} has no format version`, REBUILD, { path: place });
  if (found !== FORMAT) {
    const older = found < FORMAT;
    throw new EngineError('bundle-version', `The bundle is ${older ? 'older' : 'newer'} than this engine: it has format ${found}, the engine reads ${FORMAT}`,
      older ? `${REBUILD} with this version of Tilewright` : 'Update the engine, or reload the page without its cache',
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
