// What every page has that a scenario opens: `spied`.  Input: nothing.  Output: a function for `evaluateOnNewDocument`.

/** Before any script of the page: keep hold of its workers and of all that the status panel says. */
export function spy() {
  /** @type {any} */
  const scope = globalThis;
  scope.spied = {
    workers: [],
    texts: [],
    /**
     * Inputs as they come in JSON; a number stands for that many zeros.
     * @param {Record<string, number[] | number>} inputs
     */
    filled: (inputs) => Object.fromEntries(Object.entries(inputs).map(([key, value]) => [key, typeof value === 'number' ? new Float32Array(value) : value])),
    /**
     * Loads a bundle with the engine of this page's server.
     * @param {string} url
     * @param {object} [options]
     */
    load: async (url, options) => (await import(new URL('/engine/engine.js', location.href).href)).load(url, options),
    /** @param {Promise<any>} promise */
    outcome: (promise) => promise.then(() => 'done', (error) => (error.name === 'AbortError' ? error.name : error.code)),
    /** Something else may happen. */
    soon: () => new Promise((resolve) => setTimeout(resolve, 5)),
    /**
     * Until something is so; the driver ends what waits for ever.
     * @param {() => unknown} so
     */
    async until(so) {
      while (!so()) await scope.spied.soon();
    },
    /** Time for what must not happen.  No test fails for want of it: where it is too short, a fault is missed. */
    aWhile: () => new Promise((resolve) => setTimeout(resolve, 200)),
  };
  scope.Worker = class extends Worker {
    /**
     * @param {string | URL} url
     * @param {WorkerOptions} options
     */
    constructor(url, options) {
      super(url, options);
      this.heard = false;
      this.sent = 0;
      this.addEventListener('message', () => (this.heard = true), { once: true });
      scope.spied.workers.push(this);
    }

    /** @param {[any, any?]} message */
    postMessage(...message) {
      this.sent++;
      super.postMessage(...message);
    }
  };
  document.addEventListener('DOMContentLoaded', () => {
    const text = document.getElementById('status-text');
    if (!text) return;
    new MutationObserver(() => scope.spied.texts.push(text.textContent)).observe(text, { childList: true });
  });
}
