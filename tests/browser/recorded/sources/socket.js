// Stands in for tune/sources/socket.js: a candidate every few milliseconds, or when the test says so.

/** @param {string} url @param {(header: any) => void} onSend */
export const socketSource = (url, onSend) => ({
  url,
  next() {
    onSend({ type: 'want', count: 1 });
    return new Promise((resolve) => setTimeout(resolve, globalThis.pace ?? 2));
  },
  close() {},
});
