// Empty profiles for pages, in a browser that stays open; and scenarios that show that they are empty.
// Input: a browser.  Output: contexts.  A context serves one page at a time and starts without any data.
// A new context of Chromium is a new window, which costs a core a second: there an emptied one serves again.

/**
 * @typedef {import('puppeteer-core').Page} Page
 * @typedef {import('puppeteer-core').BrowserContext} Context
 */

/**
 * @param {import('puppeteer-core').Browser} browser
 * @param {boolean} windows whether a context is a window; only Chromium can empty one
 */
export function makeProfiles(browser, windows) {
  /** The tab that keeps a window open while nobody uses it. @type {Map<Context, Page>} */
  const resting = new Map();
  /** @type {Context[]} */
  const spare = [];

  return {
    async take() {
      const context = spare.pop() ?? await browser.createBrowserContext();
      if (windows && !resting.has(context)) resting.set(context, await context.newPage());
      return context;
    },

    /** Takes a context back: all its pages end, and all that they kept. @param {Context} context @param {string[]} urls asked for */
    async give(context, urls) {
      const tab = resting.get(context);
      if (!tab) return context.close();
      for (const page of await context.pages()) if (page !== tab) await page.close();
      const session = await tab.createCDPSession();
      const origins = new Set(urls.map((url) => new URL(url).origin));
      for (const origin of origins) await session.send('Storage.clearDataForOrigin', { origin, storageTypes: 'all' });
      await session.send('Network.clearBrowserCache');
      await session.detach();
      spare.push(context);
    },
  };
}

/** @type {import('./scenario.mjs').Scenarios} */
export const PROFILES = {
  /** Leaves something in everything that a browser keeps of a page. */
  leave: ({ page }, { cached }) => page.evaluate(async (cached) => {
    await (await navigator.storage.getDirectory()).getDirectoryHandle('left', { create: true });
    await caches.open('left');
    await new Promise((resolve, reject) => Object.assign(indexedDB.open('left'), { onsuccess: resolve, onerror: reject }));
    localStorage.setItem('left', 'yes');
    sessionStorage.setItem('left', 'yes');
    document.cookie = 'left=yes';
    await navigator.serviceWorker.register('/sw.js');
    await navigator.serviceWorker.ready;
    await fetch(cached, { cache: 'force-cache' }).then((response) => response.arrayBuffer());
  }, cached),

  /** What there is of it. */
  left: ({ page }, { cached }) => page.evaluate(async (cached) => {
    const folders = [];
    for await (const name of (await navigator.storage.getDirectory()).keys()) folders.push(name);
    return {
      folders,
      caches: await caches.keys(),
      databases: await indexedDB.databases(),
      values: [localStorage.length, sessionStorage.length],
      cookies: document.cookie,
      workers: (await navigator.serviceWorker.getRegistrations()).length,
      cached: await fetch(cached, { cache: 'only-if-cached', mode: 'same-origin' }).then(({ ok }) => ok, () => false),
    };
  }, cached),
};
