// What the chat page shows: the model's card, messages, figures of an answer.
// Input: a bundle's manifest, messages, answers.  Output: elements. A model's text is only ever set as text, never as HTML.

import { contextOf, kindOf } from '../language/language.js';
import { countText, element, make, sizeText, timeText } from './elements.js';

/**
 * @typedef {import('./conversation.js').Said} Said
 * @typedef {import('./chat_models.js').Found} Found
 */

const NAMES = { user: 'You', assistant: 'Model' };
/** Pixels from the end of the messages within which the view follows them. */
const NEAR = 60;

/** @type {Record<string, string>} */
const ENDS = { most: 'the longest answer was reached', aborted: 'stopped', context: 'the context is full', memory: 'there is no memory for more' };

/** Bytes that a device downloads, about: weights, text files, and code for one target. @param {Found['manifest']} manifest */
function downloadOf({ weights, assets, targets }) {
  const codes = Object.values(targets).map(({ builds }) => builds[0]?.code.bytes ?? 0);
  return weights.bytes + assets.reduce((sum, { bytes }) => sum + bytes, 0) + Math.max(0, ...codes);
}

/** @param {Found} found @param {boolean} [there] whether its files are on this device */
export function showCard({ name, manifest }, there = false) {
  element('card').hidden = false;
  element('card-name').textContent = name;
  element('card-size').textContent = `${sizeText(downloadOf(manifest))} ${there ? 'on this device' : 'to download once'}`;
  const room = countText(contextOf(manifest), 'token');
  element('card-context').textContent = kindOf(manifest) === 'decoder' ? `context of ${room}` : `writes a new text from up to ${room}`;
}

/** @param {Found[]} models @param {string} chosen its address */
export function showModels(models, chosen) {
  element('models').hidden = models.length < 2;
  element('model-choice').replaceChildren(...models.map(({ name, address }) => make('option', { value: address, textContent: name })));
  element('model-choice').value = chosen;
}

/** @param {string[]} textless bundles without text files */
export function showNone(textless) {
  element('none').hidden = false;
  element('none-textless').textContent = textless.length
    ? `${textless.join(', ')}: a language model without tokenizer.json and language.json. Build it again from its GGUF file.` : '';
}

/** @param {Said[]} messages */
export function showMessages(messages) {
  element('messages').replaceChildren(...messages.map(itemOf));
  element('log').scrollTop = element('log').scrollHeight;
}

/** @param {Said} said */
function itemOf({ role, content, ended = '', about = '' }) {
  const item = make('li', {},
    make('span', { className: 'hidden', textContent: `${NAMES[role]}: ` }),
    make('p', { className: 'message', textContent: content }),
    make('p', { className: 'quiet', textContent: about }));
  Object.assign(item.dataset, { role, ended });
  return item;
}

/** An answer that grows at the end of the messages; the view follows it unless somebody has scrolled up. */
export function growingAnswer() {
  const log = element('log');
  const item = itemOf({ role: 'assistant', content: '' });
  const text = document.createTextNode('');
  item.querySelector('.message')?.append(text);
  element('messages').append(item);
  log.scrollTop = log.scrollHeight;
  return {
    /** @param {string} piece */
    add(piece) {
      const follows = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR;
      text.appendData(piece);
      if (follows) log.scrollTop = log.scrollHeight;
    },
  };
}

/** Figures of an answer, in words. @param {import('../language/types.js').Answer} answer */
export function aboutText({ ids, speed, firstMilliseconds, ended }) {
  if (!ids.length) return '';
  const rate = speed ? `${speed.toFixed(1)} tokens/s` : '';
  return [countText(ids.length, 'token'), rate, `first after ${timeText(firstMilliseconds)}`, ENDS[ended ?? ''] ?? ''].filter(Boolean).join(' · ');
}

/** @param {import('../language/types.js').Answer} answer @param {number} context */
export function showSpeed({ ids, speed, firstMilliseconds, promptTokens, reusedTokens }, context) {
  element('speed-rate').textContent = speed ? `${speed.toFixed(1)} tokens/s` : '–';
  element('speed-first').textContent = ids.length ? timeText(firstMilliseconds) : '–';
  element('speed-read').textContent = `${countText(promptTokens - reusedTokens, 'token')}, ${reusedTokens.toLocaleString('en')} known from before`;
  element('speed-context').textContent = `${(promptTokens + ids.length).toLocaleString('en')} of ${countText(context, 'token')}`;
  Object.assign(element('speed').dataset, { first: firstMilliseconds, rate: speed, reused: reusedTokens });
}

/** @param {string} text @param {string} [code] */
export function showNote(text, code = '') {
  const note = element('note');
  note.textContent = text;
  note.dataset.code = code;
}
