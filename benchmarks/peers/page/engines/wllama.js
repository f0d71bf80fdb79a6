// wllama (llama.cpp in WebAssembly), its own loop and its own choice of the likeliest token.
// Input: the GGUF file `model.gguf` of a case.  Output: pieces of text with the time of each.

const DIST = '/npm/@wllama/wllama/esm/';

/**
 * @param {number} threads
 * @returns {Promise<import('../page.js').Engine>}
 */
export async function start(threads) {
  const { Wllama } = await import(`${DIST}index.js`);
  /** @type {Record<string, unknown>} */
  const about = {};
  return {
    about,
    async open({ base, sizes }) {
      const lm = new Wllama({ default: `${DIST}wasm/wllama.wasm` }, { suppressNativeLog: true });
      await lm.loadModelFromUrl(new URL(`${base}model.gguf`, location.href).href, { n_threads: threads, n_ctx: sizes.context, n_gpu_layers: 0, useCache: false });
      Object.assign(about, { threads: lm.getNumThreads(), libllama: Wllama.getLibllamaVersion() });
      return {
        run: () => Promise.reject(new Error('a language model speaks')),
        async speak({ prompt, most }) {
          const start = performance.now();
          const times = [];
          let text = '';
          let timings = null;
          const pieces = await lm.createCompletion({ prompt, max_tokens: most, temperature: 0, stream: true, cache_prompt: false });
          for await (const piece of pieces) {
            const found = piece.choices[0]?.text ?? '';
            if (found) times.push(performance.now() - start);
            text += found;
            timings = piece.timings ?? timings;
          }
          return { times, text, timings };
        },
        dispose: () => lm.exit(),
      };
    },
  };
}
