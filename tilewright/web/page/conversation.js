// The messages of a chat, kept for a reload of the tab.
// Input: what was said; a place to keep it.  Output: messages for the model, and for the view. It runs no model and shows nothing.

/**
 * @typedef {{role: 'user' | 'assistant', content: string, ended?: string, about?: string}} Said  `about`: figures of an answer, in words
 * @typedef {Pick<Storage, 'getItem' | 'setItem'>} Place
 */

const KEY = 'tilewright-chat';
const ROLES = ['user', 'assistant'];

/** The tab's storage, or where the browser gives none a place that a reload forgets. @returns {Place} */
export function tabStorage() {
  try {
    const storage = sessionStorage;
    return {
      getItem: (name) => storage.getItem(name),
      setItem(name, value) {
        try {
          storage.setItem(name, value);
        } catch {
          // Full: the chat goes on, and a reload forgets it.
        }
      },
    };
  } catch {
    return { getItem: () => null, setItem() {} };
  }
}

export class Conversation {
  /** @type {Said[]} */
  messages = [];
  #place;

  /** @param {Place} place */
  constructor(place) {
    this.#place = place;
    try {
      const kept = JSON.parse(place.getItem(KEY) ?? '[]');
      if (kept.every((/** @type {Said} */ said) => ROLES.includes(said.role) && typeof said.content === 'string')) this.messages = kept;
    } catch {
      // Of another version: the chat begins anew.
    }
  }

  /** The number of the last message of the user; -1 if there is none. */
  get lastAsked() {
    return this.messages.findLastIndex(({ role }) => role === 'user');
  }

  /** @param {string} content @param {boolean} instead of the last message of the user and what came after it */
  ask(content, instead) {
    const before = instead ? this.messages.slice(0, this.lastAsked) : this.messages;
    this.#keep([...before, { role: 'user', content }]);
  }

  /** Forgets what came after the last message of the user. */
  askAgain() {
    this.#keep(this.messages.slice(0, this.lastAsked + 1));
  }

  /** An answer without text is none. @param {Said} said */
  answer(said) {
    if (said.content) this.#keep([...this.messages, said]);
  }

  clear() {
    this.#keep([]);
  }

  /** As the model gets it. @param {string} system what it is told before @returns {{role: string, content: string}[]} */
  prompt(system) {
    const before = system ? [{ role: 'system', content: system }] : [];
    return [...before, ...this.messages.map(({ role, content }) => ({ role, content }))];
  }

  /** @param {Said[]} messages */
  #keep(messages) {
    this.messages = messages;
    this.#place.setItem(KEY, JSON.stringify(messages));
  }
}
