// Stands in for tune/sources/socket.js: a candidate every few milliseconds, up to as many as the test allows (`most`).

const NAP = 2;
const soon = () => new Promise((resolve) => setTimeout(resolve, NAP));

/** @param {string} url @param {(header: any) => void} onSend */
export function socketSource(url, onSend) {
  let given = 0;
  return {
    url,
    async next() {
      onSend({ type: 'want', count: 1 });
      await soon();
      while (given >= (globalThis.most ?? Infinity)) await soon();
      given++;
    },
    close() {},
  };
}
