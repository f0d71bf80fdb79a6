// Scenarios of the chat page, for page.mjs.  Its ids are listed in page/chat.html.

import { PATIENCE } from './scenario.mjs';

/** @type {import('./scenario.mjs').Scenarios} */
export const CHAT = {
  /** What the page shows once the status is one of `states` and the chat one of `chats`; `messages`: and there are so many at least. */
  async chat({ page }, { states = ['idle', 'ready', 'error', 'cancelled'], chats = ['idle'], messages = 0 }) {
    const found = await page.waitForFunction((states, chats, messages) => {
      const of = (/** @type {string} */ id) => document.getElementById(id);
      const shown = (/** @type {string} */ id) => of(id).checkVisibility();
      const able = (/** @type {string} */ id) => shown(id) && !of(id).disabled;
      const items = Array.from(document.querySelectorAll('#messages > li'));
      if (shown('none')) return JSON.stringify({ none: of('none').innerText });
      if (!states.includes(of('status').dataset.state) || !chats.includes(of('chat').dataset.state) || items.length < messages) return null;
      return JSON.stringify({
        state: of('status').dataset.state, code: of('status').dataset.code, status: of('status-text').textContent, hint: of('status-hint').textContent,
        card: [of('card-name').textContent, of('card-size').textContent, of('card-context').textContent],
        models: Array.from(of('model-choice').options, ({ text }) => text), device: of('device').dataset.device ?? '',
        messages: items.map((item) => ({ ...item.dataset, text: item.querySelector('.message').textContent, about: item.querySelector('.quiet').textContent })),
        note: of('note').textContent, noteCode: of('note').dataset.code ?? '',
        speed: { ...of('speed').dataset, text: of('speed').innerText },
        able: ['load', 'retry', 'cancel', 'send', 'stop', 'again', 'edit', 'edit-end', 'clear'].filter(able),
        retry: of('retry').textContent, label: of('message-label').textContent, message: of('message').value, focus: document.activeElement?.id,
      });
    }, { timeout: PATIENCE, polling: 20 }, states, chats, messages);
    return JSON.parse(await found.jsonValue());
  },

  /** Keys, as a person presses them, in the message box. */
  async keys({ page }, { text = '', keys = [] }) {
    await page.focus('#message');
    if (text) await page.keyboard.type(text);
    for (const key of keys) {
      if (key === 'Shift+Enter') {
        await page.keyboard.down('Shift');
        await page.keyboard.press('Enter');
        await page.keyboard.up('Shift');
      } else await page.keyboard.press(key);
    }
  },

  /** Once so many runs are left (test_chat.py). */
  async runsLeft({ page }, { count }) {
    await page.waitForFunction((count) => globalThis.runsLeft === count, { timeout: PATIENCE, polling: 20 }, count);
  },

  /** Elements in the page that a model could have made, and whether its code ran. */
  injected: ({ page }) => page.evaluate(() => ({
    images: document.querySelectorAll('main img').length, hacked: globalThis.hacked ?? null,
  })),
};
