// What the files of scenarios share.  A scenario does something with a page and says what it saw; pytest judges.

/**
 * A page under control, its errors, and the URLs that it requested.
 * @typedef {{page: import('puppeteer-core').Page, errors: string[], requests: string[]}} Tab
 */
/** By name.  `params` come as JSON; in the page they find `spied` (spy.mjs) and `tuning` (tuning.mjs). @typedef {Record<string, (tab: Tab, params: any) => Promise<unknown>>} Scenarios */

/** Milliseconds that a scenario waits for anything: far longer than it takes on a busy machine. */
export const PATIENCE = 400_000;
