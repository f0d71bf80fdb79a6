// The worker of text_thread.js: tokenizer and template away from the page's thread.  Each request gets exactly one answer.

import { asEngineError } from '../engine/errors.js';
import { openText } from './text.js';

/** Set by the first request. @type {Language.Text} */
let opened;

/** @param {Language.Request} request */
async function answer({ files, text = '', ordered }) {
  if (ordered) return (await import('./json_matcher.js')).tokensInOrder(opened.pieces);
  if (!files) return opened.encode(text);
  const { description, pieces } = (opened = openText(files));
  return { description, pieces };
}

self.addEventListener('message', async ({ data }) => {
  try {
    self.postMessage({ id: data.id, value: await answer(data) });
  } catch (error) {
    self.postMessage({ id: data.id, error: asEngineError(error).toJSON() });
  }
});
