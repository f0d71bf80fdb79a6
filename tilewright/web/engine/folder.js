// The address of a bundle.  Input: what the page gives.  Output: the URL of its folder, or an `input` error.

import { EngineError } from './errors.js';

/** The URL of a bundle's folder, with a slash at the end of its path, and with its query, which may be a signature for all files. @param {string | URL} given */
export function folderOf(given) {
  const base = globalThis.document?.baseURI ?? globalThis.location?.href;
  const url = URL.canParse(given, base) ? new URL(given, base) : null;
  // A path that does not begin so has no folders: blob:, data:.
  if (!url?.pathname.startsWith('/')) throw new EngineError('input', `'${given}' is no URL of a folder`, 'Give the URL of a bundle');
  url.hash = '';
  url.pathname = url.pathname.replace(/\/(bundle\.json)?$|$/, '/');
  return url.href;
}
