export type Page = import('puppeteer-core').Page;
