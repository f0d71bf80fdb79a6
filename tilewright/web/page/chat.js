// The chat page's controller: finds language models, loads one, sends messages, shows answers while they come.
// Input: clicks and keys.  Output: answers on the page.  The model (language/), the conversation and the views have files of their own.

import { EngineError } from '../engine/engine.js';
import { languageModel } from '../language/language.js';
import { aboutText, growingAnswer, showCard, showMessages, showModels, showNone, showNote, showSpeed } from './chat_view.js';
import { Conversation, tabStorage } from './conversation.js';
import { element, errorText } from './elements.js';
import { findLanguageBundles } from './chat_models.js';
import { chosenDevice, keepOffline, showDevice, showError, showLoading, showStatus, watchForget } from './status_view.js';

/** The address of the model that this tab has loaded: a reload loads it again. */
const LOADED = 'tilewright-chat-model';
/** Errors after which the model goes on. */
const MILD = ['context-full', 'input', 'invalid-model', 'kernel-trap', 'memory-limit'];

/** What a model does that does not chat. */
const OTHERWISE = {
  'speech': 'This model does not chat: it writes what is said in a recording.',
  'decoder': 'This model has no chat template: it goes on with the text of your last message.',
  'encoder-decoder': 'This model does not chat: it writes one text from another, such as a title or a translation, and sees only your last message.',
};

/** @typedef {import('./chat_models.js').Found} Found */

const kept = tabStorage();
const conversation = new Conversation(kept);
/** @type {Found[]} */
let models = [];
/** @type {Found | null} */
let chosen = null;
/** @type {import('../language/types.js').LanguageModel | null} */
let lm = null;
let loading = new AbortController();
/** Of the answer that is being written. @type {AbortController | null} */
let writing = null;
let editing = false;

async function start() {
  showStatus('loading', 'Looking for language models', { share: 0 });
  element('cancel').hidden = true;
  try {
    const { found, textless } = await findLanguageBundles();
    models = found;
    if (!models.length) {
      showNone(textless);
      element('status').hidden = true;
      return;
    }
    const before = kept.getItem(LOADED);
    const known = models.find(({ address }) => address === before);
    choose(known ?? models[0]);
    element('room').hidden = false;
    showMessages(conversation.messages);
    showButtons();
    if (known) await load();
  } catch (error) {
    fail(error);
  }
}

/** @param {Found} model */
function choose(model) {
  chosen = model;
  showModels(models, model.address);
  showCard(model);
  showStatus('idle', 'Load the model to begin', { hint: 'Its files stay on this device.' });
  element('load').hidden = false;
}

async function load() {
  if (!chosen) return start();
  release();
  const { address } = chosen;
  loading = new AbortController();
  const { signal } = loading;
  element('load').hidden = true;
  showStatus('loading', 'Loading the model', { share: 0 });
  try {
    const made = await languageModel(address, { ...chosenDevice(), signal, onProgress: showLoading });
    if (signal.aborted) return made.dispose();
    lm = made;
    kept.setItem(LOADED, address);
    const { engine, name } = made;
    showCard({ ...chosen, name }, true);
    engine.onlost = (info) => showDevice(info, 'token');
    showDevice(engine.info, 'token');
    showStatus('ready', `Ready: ${name}`, { hint: made.chats ? '' : OTHERWISE[made.kind] });
    showButtons();
    element('message').focus({ preventScroll: true });
    // On a phone the chat is as high as the screen (chat.css).
    if (matchMedia('(max-width: 480px)').matches) element('chat').scrollIntoView({ block: 'end' });
  } catch (error) {
    // Errors of a cancelled load are ignored; another one may already be running.
    if (!signal.aborted) fail(error);
  }
}

/** @param {unknown} error */
function fail(error) {
  release();
  showError(error);
  element('retry').textContent = 'Try again';
  showButtons();
}

/** The page must not offer a model that may be dead. */
function release() {
  writing?.abort();
  loading.abort();
  lm?.dispose();
  lm = null;
}

/** A number that somebody typed. @param {string} id @param {number} least @param {number} most */
const limited = (id, least, most) => Math.min(most, Math.max(least, Number(element(id).value) || 0));

/** Answers the last message of the user. */
async function write() {
  const model = lm;
  if (!model) return;
  const control = new AbortController();
  writing = control;
  showNote('');
  showMessages(conversation.messages);
  showButtons();
  const growing = growingAnswer();
  const options = {
    signal: control.signal, most: Math.trunc(limited('most', 1, 1e5)), temperature: limited('temperature', 0, 5),
    seed: crypto.getRandomValues(new Uint32Array(1))[0],
  };
  const prompt = conversation.prompt(element('system').value.trim());
  const answer = model.chats ? model.chat(prompt, options) : model.generate(prompt[prompt.length - 1].content, options);
  /** @type {unknown} */
  let problem = null;
  try {
    for await (const piece of answer) growing.add(piece);
  } catch (error) {
    if (!control.signal.aborted) problem = error;
  }
  conversation.answer({ role: 'assistant', content: answer.text, ended: answer.ended ?? '', about: aboutText(answer) });
  writing = null;
  showMessages(conversation.messages);
  if (answer.ids.length) showSpeed(answer, model.context);
  showButtons();
  if (problem) showProblem(problem);
}

/** @param {unknown} error */
function showProblem(error) {
  const { code, message, hint } = errorText(error);
  const full = code === 'context-full' || code === 'memory-limit';
  showNote(full ? `${message}. Clear the chat, or edit your message.` : `${message}. ${hint}.`, code);
  if (!(error instanceof EngineError && MILD.includes(error.code))) fail(error);
}

/** What can be done now. */
function showButtons() {
  const busy = writing !== null;
  const asked = conversation.lastAsked >= 0;
  element('chat').dataset.state = busy ? 'writing' : 'idle';
  element('log').setAttribute('aria-busy', String(busy));
  element('send').hidden = busy;
  element('stop').hidden = !busy;
  element('send').disabled = !lm || !element('message').value.trim();
  element('again').disabled = busy || !lm || !asked;
  element('edit').disabled = busy || !asked;
  element('clear').disabled = busy || !conversation.messages.length;
  for (const id of ['again', 'edit', 'clear']) element(id).hidden = editing;
  element('edit-end').hidden = !editing;
  element('message-label').textContent = editing ? 'Edit your last message' : 'Your message';
}

/** @param {boolean} on */
function edit(on) {
  editing = on;
  const box = element('message');
  box.value = on ? conversation.messages[conversation.lastAsked].content : '';
  showButtons();
  box.focus();
}

async function send() {
  const text = element('message').value.trim();
  if (!text || !lm || writing) return;
  conversation.ask(text, editing);
  editing = false;
  element('message').value = '';
  await write();
}

element('composer').addEventListener('submit', (/** @type {Event} */ event) => {
  event.preventDefault();
  send();
});
element('message').addEventListener('input', showButtons);
element('message').addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => {
  // Enter may also end the input of a composed character.
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
document.addEventListener('keydown', ({ key }) => {
  if (key !== 'Escape') return;
  if (writing) writing.abort();
  else if (editing) edit(false);
});
element('stop').addEventListener('click', () => {
  writing?.abort();
  element('message').focus();
});
element('again').addEventListener('click', () => {
  conversation.askAgain();
  write();
});
element('edit').addEventListener('click', () => edit(true));
element('edit-end').addEventListener('click', () => edit(false));
element('clear').addEventListener('click', () => {
  conversation.clear();
  showMessages(conversation.messages);
  showNote('');
  edit(false);
});
element('load').addEventListener('click', load);
element('retry').addEventListener('click', load);
element('cancel').addEventListener('click', () => {
  release();
  showStatus('cancelled', 'Stopped. Completed files are kept');
  element('retry').textContent = 'Resume';
  showButtons();
});
element('model-choice').addEventListener('change', () => {
  const wanted = models.find(({ address }) => address === element('model-choice').value);
  if (!wanted) return;
  release();
  choose(wanted);
  showButtons();
});
element('device-choice').addEventListener('change', () => {
  // Before the first load nothing is there to be moved.
  if (element('status').dataset.state !== 'idle') load();
});

watchForget();
keepOffline();
start();
