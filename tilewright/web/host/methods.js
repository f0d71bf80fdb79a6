// The methods of the host protocol, each a call of the engine.
// Input: a request with its binary parts.  Output: a JSON result with its binary parts.
// host_protocol.js handles the socket.

import { cachedBytes, clearCache, EngineError, load } from '../engine/engine.js';
import { arrayOf, requireKnown } from '../engine/tensors.js';

/**
 * @typedef {import('../engine/types.js').Engine} Engine
 * @typedef {import('./host_protocol.js').Request} Request
 * @typedef {import('./host_protocol.js').Description} Description
 * @typedef {{result: object, parts: ArrayBuffer[]}} Answer
 */

export class Methods {
  /** @type {Map<number, Engine>} */
  #engines = new Map();
  #nextHandle = 1;
  /** By request id. @type {Map<number, AbortController>} */
  #running = new Map();
  #onProgress;

  /** @param {(progress: object) => void} onProgress */
  constructor(onProgress) {
    this.#onProgress = onProgress;
  }

  /**
   * Runs a method.  Rejects with an EngineError, an AbortError, or an Error for a malformed request.
   * @param {Request} request
   * @returns {Promise<Answer>}
   */
  async call(request) {
    const stop = new AbortController();
    this.#running.set(request.id, stop);
    try {
      return await this.#dispatch(request, stop.signal);
    } finally {
      this.#running.delete(request.id);
    }
  }

  disposeAll() {
    for (const stop of this.#running.values()) stop.abort();
    for (const engine of this.#engines.values()) engine.dispose();
  }

  /**
   * @param {Request} request
   * @param {AbortSignal} signal
   * @returns {Promise<Answer>}
   */
  async #dispatch({ id, method, params, parts }, signal) {
    switch (method) {
      case 'load': return json(await this.#load(id, params, signal));
      case 'run': return this.#run(params, parts, signal);
      case 'generate': return json(await this.#generate(params, signal));
      case 'time': case 'profile': return json(await this.#measure(method, params));
      case 'tune': return json({ summary: await this.#tune(id, params, signal) });
      case 'asset': return this.#asset(params);
      case 'state': return this.#state(params);
      case 'set_state': return json(await this.#setState(params, parts));
      case 'reset': return json(await this.#reset(params));
      case 'info': return json({ info: this.#engine(params).info });
      case 'dispose': return json(this.#dispose(params));
      case 'abort': return json({ aborted: this.#abort(params.request) });
      case 'cached_bytes': return json({ bytes: await cachedBytes() });
      case 'clear_cache': return json({ bytes: await clearCache() });
      case 'close': {
        this.#engines.forEach((engine) => engine.dispose());
        return json({});
      }
      default: throw new Error(`The host has no method '${method}'`);
    }
  }

  /**
   * @param {number} id
   * @param {{url: string, options?: import('../engine/types.js').Limits}} params
   * @param {AbortSignal} signal
   */
  async #load(id, { url, options = {} }, signal) {
    const onProgress = (/** @type {object} */ progress) => this.#onProgress({ id, ...progress });
    const engine = await load(url, { ...options, signal, onProgress });
    const handle = this.#nextHandle++;
    this.#engines.set(handle, engine);
    return { handle, info: engine.info, states: engine.parts.manifest.states };
  }

  /**
   * @param {{handle: number, inputs: Description[]}} params
   * @param {ArrayBuffer[]} parts
   * @param {AbortSignal} signal
   * @returns {Promise<Answer>}
   */
  async #run(params, parts, signal) {
    const engine = this.#engine(params);
    const inputs = params.inputs.map(({ name, dtype, shape }, at) => [name, { data: new (arrayOf(dtype))(parts[at]), shape }]);
    const { outputs, ...facts } = await engine.run(Object.fromEntries(inputs), { signal });
    const tensors = Object.entries(outputs);
    return {
      result: {
        outputs: tensors.map(([name, { dtype, shape, data }]) => ({ name, dtype, shape, bytes: data.byteLength })),
        ...facts,
      },
      parts: tensors.map(([, { data }]) => data.buffer),
    };
  }

  /** @param {'time' | 'profile'} method @param {{handle: number}} params beside it the method's options */
  #measure(method, { handle, ...options }) {
    return this.#engine({ handle })[method](options);
  }

  /**
   * @param {{handle: number, prompt: number[], past?: number, most: number, end?: number[], inputs?: Record<string, number[]>}} params
   * @param {AbortSignal} signal
   */
  async #generate({ handle, prompt, inputs = {}, ...options }, signal) {
    const [tokens, milliseconds] = [/** @type {number[]} */ ([]), /** @type {number[]} */ ([])];
    const { generate } = await import('../engine/generate.js');
    let before = performance.now();
    for await (const token of generate(this.#engine({ handle }), prompt, { ...options, inputs: () => inputs, signal })) {
      const now = performance.now();
      tokens.push(token);
      milliseconds.push(now - before);
      before = now;
    }
    return { tokens, milliseconds };
  }

  /**
   * @param {number} id
   * @param {{handle: number, source: {kind: string, url: string}, options?: object}} params
   * @param {AbortSignal} signal
   */
  async #tune(id, { handle, source: { kind, url }, options = {} }, signal) {
    if (kind !== 'socket') throw new Error(`Unknown kind of source '${kind}': only 'socket' is supported`);
    const [{ tune }, { socketSource }] = await Promise.all([import('../tune/tuner.js'), import('../tune/sources/socket.js')]);
    const onEvent = (/** @type {object} */ event) => this.#onProgress({ id, event });
    const source = socketSource(url, (message) => onEvent({ type: 'sent', message }));
    return tune(this.#engine({ handle }), { ...options, source, signal, onEvent });
  }

  /**
   * @param {{handle: number, name: string}} params
   * @returns {Promise<Answer>}
   */
  async #asset(params) {
    const bytes = await this.#engine(params).asset(params.name);
    const asset = { name: params.name, dtype: 'u8', shape: [bytes.byteLength], bytes: bytes.byteLength };
    return { result: { asset }, parts: [bytes] };
  }

  /**
   * @param {{handle: number, name: string}} params
   * @returns {Promise<Answer>}
   */
  async #state(params) {
    const engine = this.#engine(params);
    const data = /** @type {any} */ (await engine.states.read(params.name));
    const { dtype, shape } = requireKnown(params.name, engine.parts.manifest.states, 'state');
    return { result: { state: { name: params.name, dtype, shape, bytes: data.byteLength } }, parts: [data.buffer] };
  }

  /** @param {{handle: number}} params */
  async #reset(params) {
    await this.#engine(params).states.reset();
    return {};
  }

  /**
   * @param {{handle: number, inputs: Description[]}} params
   * @param {ArrayBuffer[]} parts
   */
  async #setState({ handle, inputs: [{ name, dtype }] }, [data]) {
    await this.#engine({ handle }).states.write(name, new (arrayOf(dtype))(data));
    return {};
  }

  /** @param {{handle: number}} params */
  #dispose({ handle }) {
    this.#engines.get(handle)?.dispose();
    this.#engines.delete(handle);
    return {};
  }

  /** @param {number} request */
  #abort(request) {
    const stop = this.#running.get(request);
    stop?.abort();
    return stop !== undefined;
  }

  /** @param {{handle: number}} params */
  #engine({ handle }) {
    const engine = this.#engines.get(handle);
    if (engine) return engine;
    throw new EngineError('disposed', `No engine has the handle ${handle}: it was disposed, or never loaded`, 'Load a bundle first', { handle });
  }
}

/**
 * @param {object} result
 * @returns {Answer}
 */
const json = (result) => ({ result, parts: [] });
