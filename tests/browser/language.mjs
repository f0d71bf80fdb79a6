// Scenarios of language models (web/language), for page.mjs, on any page of the server.

/** @type {import('./scenario.mjs').Scenarios} */
export const LANGUAGE = {
  /**
   * Loads a model and lets it answer, one chat after the other: texts and facts, or the codes of errors.  `after`: pieces of text after which an answer is
   * aborted; `call`: the model's function.
   */
  answers: ({ page }, { url, chats, options = {}, load = {} }) => page.evaluate(async (url, chats, options, load) => {
    const { languageModel } = await import(new URL('/language/language.js', location.href).href);
    const results = [];
    try {
      const lm = await languageModel(url, load);
      for (const chat of chats) {
        const control = new AbortController();
        const { after = Infinity, ...more } = { ...options, ...chat.options };
        const answer = lm[chat.call ?? (typeof chat.text === 'string' ? 'complete' : 'chat')](chat.text, { ...more, signal: control.signal });
        let [error, pieces] = ['', 0];
        try {
          for await (const _ of answer) if (++pieces === after) control.abort();
        } catch (caught) {
          error = caught instanceof DOMException ? caught.name : caught.code;
        }
        const { text, ids, ended, promptTokens, reusedTokens, language, duration } = answer;
        results.push({ text, ids, ended, promptTokens, reusedTokens, language, duration, error });
      }
      lm.dispose();
    } catch ({ code, message, hint }) {
      return { code, message, hint };
    }
    return results;
  }, url, chats, options, load),

  /** A template that loops, with little patience; then a text without it. */
  endlessTemplate: ({ page }, { files }) => page.evaluate(async (files) => {
    const { openTextThread } = await import(new URL('/language/text_thread.js', location.href).href);
    const buffer = (/** @type {string} */ name) => new TextEncoder().encode(files[name]).buffer;
    let reads = 0;
    const thread = await openTextThread(async () => {
      reads++;
      return { tokenizer: buffer('tokenizer.json'), language: buffer('language.json') };
    }, 3000);
    const endless = thread.encode([{ role: 'user', content: 'a' }]).catch((/** @type {any} */ error) => error.code);
    // It waits for the new worker.
    const waiting = thread.encode('hello');
    const result = { endless: await endless, ids: await waiting, reads };
    thread.close();
    return { ...result, closed: await thread.encode('a').catch((/** @type {any} */ error) => error.code) };
  }, files),
};
