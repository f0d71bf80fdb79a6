// A worker of the pool: inside the driver's `serve` it takes part in every run, until the stop word is set.
// While it serves, no message reaches it; words in shared memory do.

import { instantiate, leaveRun, live, TRAP, wordsOf } from './driver.js';

/** @type {T.Follow} */
function follow(number, port) {
  /** @type {T.Driver | null} */
  let driver;
  /** @type {Int32Array} */
  let words;

  /** @type {T.Take} */
  async function take(setup) {
    if (!setup) return serve();
    const { version } = setup;
    driver = null;
    words = wordsOf(setup.memory);
    const problem = await instantiate(setup, number).then((made) => ((driver = made), ''), String);
    port.postMessage({ version, problem });
  }

  function serve() {
    for (;;) {
      try {
        return driver?.serve(number);
      } catch {
        // The kernel's fault, not the worker's: the run ends with an error, and the next one may come.
        leaveRun(words, number, TRAP);
      }
    }
  }

  let turn = Promise.resolve();
  port.onmessage = ({ data }) => (turn = turn.then(() => take(data)));
}

self.addEventListener('message', ({ data: { port, number } }) => {
  live().then(() => follow(number, port));
});
