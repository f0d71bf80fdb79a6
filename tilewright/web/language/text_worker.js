// The worker of text_thread.js: tokenizer and template away from the page's thread.  Each request gets exactly one answer.

import { asEngineError } from '../engine/errors.js';
import { openText } from './text.js';

/** Set by the first request. @type {Language.Text} */
let opened;

/** @param {Language.Request} request */
function answer({ files, text = '' }) {
  if (!files) return opened.encode(text);
  const { description, pieces } = (opened = openText(files));
  return { description, pieces };
}

self.addEventListener('message', ({ data }) => {
  try {
    self.postMessage({ id: data.id, value: answer(data) });
  } catch (error) {
    self.postMessage({ id: data.id, error: asEngineError(error).toJSON() });
  }
});
