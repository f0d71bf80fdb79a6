// Resolves the addresses that page/ imports, for Node: the server's folders become the same folders on disk.
// Input: the folders by the first part of an address (page.mjs gives them).  Output: Node's resolve hook.

import { pathToFileURL } from 'node:url';

/** @type {Record<string, string>} */
let folders = {};

/** @param {Record<string, string>} data */
export function initialize(data) {
  folders = data;
}

/** @type {import('node:module').ResolveHook} */
export function resolve(specifier, context, next) {
  const [, first, rest] = /^\/(\w+)\/(.+)$/.exec(specifier) ?? [];
  return next(folders[first] ? pathToFileURL(`${folders[first]}/${rest}`).href : specifier, context);
}
