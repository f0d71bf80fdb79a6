// Scenarios of engines on a device of the page, with buffers as inputs and outputs: for page.mjs, and for Node with Dawn.

/** What the scenarios share, as `kit` in the page. */
export function makeKit() {
  const plain = (/** @type {any} */ error) => JSON.parse(JSON.stringify(error));
  globalThis.kit = {
    async device(/** @type {GPUDeviceDescriptor} */ wanted) {
      return (await navigator.gpu.requestAdapter()).requestDevice(wanted);
    },

    /** A buffer with this array from byte `offset` on. */
    buffer(/** @type {GPUDevice} */ device, /** @type {any} */ array, { offset = 0, usage = GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST } = {}) {
      const made = device.createBuffer({ size: offset + array.byteLength, usage });
      if (usage & GPUBufferUsage.COPY_DST) device.queue.writeBuffer(made, offset, array);
      return made;
    },

    /** What a buffer holds. */
    async back(/** @type {GPUDevice} */ device, /** @type {GPUBuffer} */ buffer, Kind = Float32Array) {
      const into = device.createBuffer({ size: buffer.size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
      const encoder = device.createCommandEncoder();
      encoder.copyBufferToBuffer(buffer, 0, into, 0, buffer.size);
      device.queue.submit([encoder.finish()]);
      await into.mapAsync(GPUMapMode.READ);
      return Array.from(new Kind(into.getMappedRange().slice(0)), Number);
    },

    errorOf: (/** @type {Promise<any>} */ promise) => promise.then(() => null, plain),

    /** Numbers as the tensors of the tests have them, with an axis of n. */
    inputs(/** @type {number} */ n) {
      const count = 2 * n * 4;
      return {
        x: Float32Array.from({ length: count }, (_, at) => at / 4 - 1),
        k: Int32Array.from({ length: count }, (_, at) => 3 * at - 7),
        l: BigInt64Array.from({ length: 3 }, (_, at) => BigInt(at - 1) * 5n),
        b: Uint8Array.from([1, 0, 1]),
      };
    },
  };
}

/** @type {Record<string, (params: any) => Promise<any>>} */
export const ON_DEVICES = {
  /** Runs with arrays, with buffers in and out, and with what a run left in a buffer; with `n` of its buckets. */
  async buffers({ url, n }) {
    const { kit, spied } = globalThis;
    const device = await kit.device();
    const destroyed = new Set();
    const { mapAsync, destroy } = GPUBuffer.prototype;
    /** @type {number[]} */
    const mapped = [];
    GPUBuffer.prototype.mapAsync = function (...given) {
      mapped.push(this.size);
      return mapAsync.apply(this, given);
    };
    GPUBuffer.prototype.destroy = function () {
      destroyed.add(this);
      destroy.call(this);
    };
    const made = new Set();
    const { createBuffer } = device;
    device.createBuffer = (...given) => {
      const buffer = createBuffer.apply(device, given);
      made.add(buffer);
      return buffer;
    };
    const engine = await spied.load(url, { device });
    const info = engine.info;
    const own = [...made];
    const { x, k, l, b } = kit.inputs(n);
    const shape = [2, n, 4];
    const wanted = (await engine.run({ x: { data: x, shape }, k: { data: k, shape }, l, b })).outputs;
    const [xs, ks, ls] = [kit.buffer(device, x, { offset: 16 }), kit.buffer(device, k), kit.buffer(device, l)];
    const y = kit.buffer(device, new Float32Array(2 + x.length).fill(-9)), j = kit.buffer(device, new Int32Array(k.length)), m = kit.buffer(device, new BigInt64Array(3));
    mapped.length = 0;
    const run = await engine.run({ x: { buffer: xs, offset: 16, shape }, k: { buffer: ks, shape }, l: ls, b }, { into: { y: { buffer: y, offset: 4 }, j, m } });
    const sizes = [...mapped];
    const found = { y: await kit.back(device, y), j: await kit.back(device, j, Int32Array), m: await kit.back(device, m, BigInt64Array), c: Array.from(run.outputs.c.data) };
    const { buffer, offset, data, shape: given } = run.outputs.y;
    // What a run left is the next one's input.
    const next = await engine.run({ x: run.outputs.y, k: { buffer: ks, shape }, l, b });
    const { steps } = await engine.profile({ bucket: { n }, runs: 1 });
    const half = await engine.run({ x: run.outputs.y, k: { data: k, shape }, l, b }, { into: { y: { buffer: y, offset: 0 } } });
    engine.dispose();
    const left = await Promise.race([device.lost.then(() => 'lost'), device.queue.onSubmittedWorkDone().then(() => 'there')]);
    Object.assign(GPUBuffer.prototype, { mapAsync, destroy });
    return {
      info, workers: spied.workers.length, sizes, found, left, next: Array.from(next.outputs.y.data), steps: steps.length,
      half: await kit.back(device, y), j: Array.from(half.outputs.j.data),
      told: { same: buffer === y, offset, none: data === undefined, shape: given },
      wanted: Object.fromEntries(Object.entries(wanted).map(([name, one]) => [name, Array.from(one.data, Number)])),
      own: own.length, destroyed: own.every((one) => destroyed.has(one)), theirs: [xs, ks, ls, y, j, m].some((one) => destroyed.has(one)),
    };
  },

  /** Runs that nobody waits for, whose arrays are written again at once; and what an earlier run left, as a place and as an input. */
  async hurried({ url }) {
    const { kit, spied } = globalThis;
    const device = await kit.device();
    const engine = await spied.load(url, { device });
    const shape = [2, 4, 4];
    const { x, k, l, b } = kit.inputs(4);
    const source = kit.buffer(device, x), y = kit.buffer(device, x), j = kit.buffer(device, k);
    const mine = Int32Array.from(k);
    const first = engine.run({ x: { buffer: source, shape }, k: { data: mine, shape }, l, b });
    mine.fill(0);
    const second = engine.run({ x: { data: x, shape }, k: { data: k, shape }, l, b }, { into: { y, j } });
    const third = engine.run({ x: { data: x, shape }, k: { data: k, shape }, l, b });
    const [one, two, three] = await Promise.all([first, second, third]);
    const half = kit.inputs(2);
    const short = await engine.run({ x: { data: half.x, shape: [2, 2, 4] }, k: { data: half.k, shape: [2, 2, 4] }, l, b }, { into: { y: two.outputs.y } });
    const error = await kit.errorOf(engine.run({ x: two.outputs.j, k: { data: k, shape }, l, b }));
    engine.dispose();
    return { order: [one.run, two.run, three.run], j: Array.from(one.outputs.j.data), wanted: Array.from(k, (at) => at + 1), short: short.outputs.y.shape, error };
  },

  /** What is refused; what a state is before and after that; and a run afterwards. */
  async wrongBuffers({ url, state }) {
    const { kit, spied } = globalThis;
    const [device, other] = [await kit.device(), await kit.device()];
    const engine = await spied.load(url, { device });
    const n = 4, shape = [2, n, 4];
    const { x, k, l, b } = kit.inputs(n);
    const usual = { x: { data: x, shape }, k: { data: k, shape }, l, b };
    const made = (/** @type {object} */ more, from = device) => kit.buffer(from, x, more);
    const open = device.createBuffer({ size: x.byteLength, usage: GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST, mappedAtCreation: true });
    const gone = made({});
    gone.destroy();
    const input = (/** @type {any} */ given) => kit.errorOf(engine.run({ ...usual, ...given }));
    const output = (/** @type {any} */ into) => kit.errorOf(engine.run(usual, { into }));
    const errors = {
      source: await input({ x: { buffer: made({ usage: GPUBufferUsage.COPY_DST }), shape } }),
      target: await output({ y: made({ usage: GPUBufferUsage.COPY_SRC }) }),
      small: await input({ x: { buffer: made({}), offset: 4, shape } }),
      smallTarget: await output({ y: kit.buffer(device, new Float32Array(3)) }),
      offset: await input({ x: { buffer: made({}), offset: 2, shape } }),
      open: await input({ x: made({}) }),
      dtype: await input({ b: kit.buffer(device, new Uint8Array(12)) }),
      dtypeTarget: await output({ c: kit.buffer(device, new Uint8Array(12)) }),
      mapped: await input({ x: { buffer: open, shape } }),
      destroyed: await input({ x: { buffer: gone, shape } }),
      destroyedTarget: await output({ y: gone }),
      other: await input({ x: { buffer: made({}, other), shape } }),
      otherTarget: await output({ y: made({}, other) }),
      unknown: await output({ z: made({}) }),
      shape: await input({ x: { buffer: made({}), shape: [2, 4] } }),
    };
    const after = Array.from((await engine.run(usual)).outputs.y.data);
    engine.dispose();
    const keeper = await spied.load(state, { device });
    const step = { x: Float32Array.from({ length: 8 }, (_, at) => at / 8) };
    await keeper.run(step);
    const states = [Array.from(await keeper.states.read('h'))];
    errors.state = await kit.errorOf(keeper.run({ x: { buffer: gone } }));
    states.push(Array.from(await keeper.states.read('h')));
    keeper.dispose();
    return { errors, after, wanted: Array.from(x, (one) => 2 * one), states };
  },

  /** Buffers for engines that are on no device of the page. */
  async farBuffers({ url }) {
    const { kit, spied } = globalThis;
    const buffer = kit.buffer(await kit.device(), new Float32Array(96));
    const errors = [];
    for (const device of ['webgpu', 'wasm']) {
      const engine = await spied.load(url, { device, threads: 1 });
      const usual = { x: new Float32Array(96), z: new Float32Array(96) };
      errors.push(await kit.errorOf(engine.run({ ...usual, x: { buffer } })), await kit.errorOf(engine.run(usual, { into: { y: buffer } })));
      engine.dispose();
    }
    return [...errors, await kit.errorOf(spied.load(url, { device: 'gpu' })), await kit.errorOf(spied.load(url, { device: {} })), await kit.errorOf(spied.load(url, { device: await kit.device(), recover: true }))];
  },

  /** Devices with and without features, without room, and lost: before a load, and before a run. */
  async devices({ url, large }) {
    const { kit, spied } = globalThis;
    const adapter = await navigator.gpu.requestAdapter();
    const known = ['shader-f16', 'subgroups'].filter((name) => adapter.features.has(name));
    const features = [];
    for (const requiredFeatures of [[], known]) {
      const engine = await spied.load(url, { device: await kit.device({ requiredFeatures }) });
      features.push(engine.info.adapter.features.filter((/** @type {string} */ name) => known.includes(name)));
      engine.dispose();
    }
    const device = await kit.device();
    const small = await kit.errorOf(spied.load(large, { device }));
    const capped = await kit.errorOf(spied.load(url, { device, memoryLimit: 1000 }));
    const engine = await spied.load(url, { device });
    const inputs = { x: new Float32Array(96).fill(3), z: new Float32Array(96).fill(1) };
    const before = (await engine.run(inputs)).outputs.y.data[0];
    device.destroy();
    await device.lost;
    const lost = [await kit.errorOf(engine.run(inputs)), await kit.errorOf(spied.load(url, { device }))];
    engine.dispose();
    const fresh = await spied.load(url, { device: await kit.device() });
    const after = (await fresh.run(inputs)).outputs.y.data[0];
    const { info } = fresh;
    fresh.dispose();
    return { known, features, small, capped, lost, before, after, cache: info.cache, disposed: await kit.errorOf(fresh.run(inputs)) };
  },

  /**
   * Engines on a device that makes no buffers of one kind: of the plans' numbers, for what runs carry over, for a copy of the states, for
   * results; and what a state was before and after the runs that were timed.  `other`: on one that refuses bindings, and on one without room
   * for a run with a buffer of the page.
   */
  async noRoom({ url }) {
    const { kit, spied } = globalThis;
    const device = await kit.device();
    const { createBuffer } = device;
    let full = 0;
    device.createBuffer = (/** @type {GPUBufferDescriptor} */ parts) => createBuffer.call(device, parts.usage === full ? { ...parts, size: 2 ** 40 } : parts);
    const { COPY_SRC, COPY_DST, MAP_READ, UNIFORM } = GPUBufferUsage;
    const failing = async (/** @type {number} */ usage, /** @type {() => Promise<any>} */ work) => {
      full = usage;
      const error = await kit.errorOf(work());
      full = 0;
      return error;
    };
    device.createBindGroup = (/** @type {GPUBindGroupDescriptor} */ parts) => GPUDevice.prototype.createBindGroup.call(device, { ...parts, entries: [] });
    const bindings = await kit.errorOf(spied.load(url, { device }));
    device.createBindGroup = GPUDevice.prototype.createBindGroup;
    // The size that they refuse stands for a size that they have no room for.
    device.popErrorScope = async () => {
      const found = await GPUDevice.prototype.popErrorScope.call(device);
      return found && new GPUOutOfMemoryError(found.message);
    };
    const numbers = await failing(UNIFORM | COPY_DST, () => spied.load(url, { device }));
    const carried = await failing(COPY_SRC | COPY_DST, () => spied.load(url, { device }));
    const engine = await spied.load(url, { device });
    const state = async () => Array.from(await engine.states.read('h'));
    const inputs = { x: Float32Array.from({ length: 8 }, (_, at) => at / 8) };
    const results = await failing(MAP_READ | COPY_DST, () => engine.run(inputs));
    await engine.run(inputs);
    const before = await state();
    const copy = await failing(COPY_SRC | COPY_DST, () => engine.time({ runs: 2 }));
    const after = await state();
    device.popErrorScope = async () => {
      await GPUDevice.prototype.popErrorScope.call(device);
      return new GPUOutOfMemoryError('full');
    };
    const buffer = await kit.errorOf(engine.run(inputs, { into: { y: kit.buffer(device, inputs.x) } }));
    engine.dispose();
    return { errors: { numbers, carried, results, copy }, other: { bindings, buffer }, before, after };
  },

  /** Runs of which the device refuses the second one's submission, since it has a part that uses a destroyed buffer; what each gives. */
  async refusedSubmission({ url }) {
    const { kit, spied } = globalThis;
    const device = await kit.device();
    const engine = await spied.load(url, { device });
    const { submit } = device.queue;
    const [from, to] = [1, 2].map(() => device.createBuffer({ size: 4, usage: GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST }));
    from.destroy();
    const found = [];
    for (const [at, wrong] of [false, true, false].entries()) {
      device.queue.submit = (/** @type {GPUCommandBuffer[]} */ work) => {
        const encoder = device.createCommandEncoder();
        if (wrong) encoder.copyBufferToBuffer(from, 0, to, 0, 4);
        submit.call(device.queue, [...work, encoder.finish()]);
      };
      const inputs = { x: new Float32Array(96).fill(at + 2), z: new Float32Array(96).fill(1) };
      found.push(await engine.run(inputs).then((/** @type {any} */ { outputs }) => ({ y: outputs.y.data[0] }), (/** @type {any} */ error) => ({ error: JSON.parse(JSON.stringify(error)) })));
    }
    engine.dispose();
    return found;
  },

  /** Loads whose device is lost in these phases. */
  async lostLoading({ url, phases }) {
    const { kit, spied } = globalThis;
    const errors = [];
    for (const wanted of phases) {
      const device = await kit.device();
      const onProgress = (/** @type {any} */ { phase }) => phase === wanted && device.destroy();
      errors.push(await kit.errorOf(spied.load(url, { device, onProgress })));
    }
    return errors;
  },

  /** What loads say of pipelines, in a worker and on a device of the page. */
  async pipelines({ url, devices }) {
    const { kit, spied } = globalThis;
    const found = [];
    for (const device of devices) {
      /** @type {any[]} */
      const heard = [];
      const own = device === 'own' ? await kit.device() : device;
      const engine = await spied.load(url, { device: own, onProgress: (/** @type {any} */ { phase, pipelines }) => heard.push({ phase, ...pipelines }) });
      engine.dispose();
      found.push(heard);
    }
    return found;
  },

  /** A load on a device, ended in this phase: how many buffers it made, and how many of them are left. */
  async abortedHere({ url, phase: wanted }) {
    const { kit, spied } = globalThis;
    const device = await kit.device();
    const { createBuffer } = device;
    /** @type {Set<GPUBuffer>} */
    const made = new Set();
    const { destroy } = GPUBuffer.prototype;
    GPUBuffer.prototype.destroy = function () {
      made.delete(this);
      destroy.call(this);
    };
    let count = 0;
    device.createBuffer = (...given) => {
      const buffer = createBuffer.apply(device, given);
      count++;
      made.add(buffer);
      return buffer;
    };
    const stop = new AbortController();
    const onProgress = (/** @type {any} */ { phase }) => phase === wanted && stop.abort();
    const outcome = await spied.load(url, { device, signal: stop.signal, onProgress }).then(() => 'done', (/** @type {Error} */ { name }) => name);
    while (made.size) await device.queue.onSubmittedWorkDone();
    await spied.aWhile();
    GPUBuffer.prototype.destroy = destroy;
    return { outcome, count, left: made.size };
  },
};

/** @type {import('./scenario.mjs').Scenarios} */
export const BUFFERS = Object.fromEntries(Object.entries(ON_DEVICES).map(([name, scenario]) => [name, async ({ page }, params) => {
  await page.evaluate(makeKit);
  return page.evaluate(`(${{ [name]: scenario }[name].toString().replace(/^async \w+/, 'async function')})(${JSON.stringify(params)})`);
}]));
