// Stands in for tune/socket.js: a candidate every few milliseconds, or when the test says so.

/** @param {string} url */
export const socketSource = (url) => ({
  url,
  next: () => new Promise((resolve) => setTimeout(resolve, globalThis.pace ?? 2)),
  close() {},
});
