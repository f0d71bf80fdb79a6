// A WebGPU for Node that computes nothing: it converts arguments as browsers do, and reports what a device would find invalid.
// Input: what web/ calls.  Output: buffers of zeros and of what was written; broken rules, as errors that nobody waits for.

/** Most bytes of a buffer, as page.mjs has them. */
const MOST = 2 ** 26;
const [STORAGE, UNIFORM] = [1, 2];
const LIMITS = { maxStorageBufferBindingSize: MOST, maxBufferSize: MOST };
const UNIFORM_BYTES = 65536;
const GROUPS = 65535;

/** What a browser says on the console alone; here it must not happen. @param {boolean} holds @param {string} what */
function require(holds, what) {
  if (!holds) void Promise.reject(new Error(`invalid: ${what}`));
}

/** An integer as WebGPU takes it. @param {unknown} value */
function integer(value, most = Number.MAX_SAFE_INTEGER) {
  const number = Math.trunc(Number(value));
  if (!(number >= 0 && number <= most)) throw new TypeError(`${String(value)} is outside of the range`);
  return number;
}

class FakeBuffer {
  constructor({ size, usage }) {
    this.size = integer(size);
    this.usage = usage;
    require(this.size <= MOST, `a buffer of ${this.size} bytes`);
    this.bytes = new ArrayBuffer(this.size);
  }

  async mapAsync() {}

  getMappedRange = () => this.bytes;
  unmap() {}
  destroy() {}
}

/** @param {FakeBuffer} buffer */
function room(buffer, offset, size, what) {
  [offset, size] = [integer(offset), integer(size)];
  require(offset % 4 === 0 && size % 4 === 0 && offset + size <= buffer.size, `${what} of ${size} bytes at ${offset}`);
  return [offset, size];
}

class Pass {
  #pipeline = false;
  #bound = false;

  setPipeline(pipeline) {
    if (pipeline?.kind !== 'pipeline') throw new TypeError('no pipeline');
    this.#pipeline = true;
  }

  setBindGroup(_, { uniform }) {
    this.#bound = Boolean(uniform);
  }

  dispatchWorkgroups(...counts) {
    counts.forEach((count) => require(integer(count, 2 ** 32 - 1) <= GROUPS, `${count} workgroups`));
    require(this.#pipeline && this.#bound, 'a dispatch without a kernel');
  }

  end() {}
}

const encoder = () => ({
  beginComputePass: () => new Pass(),
  clearBuffer(buffer, at, size) {
    [at, size] = room(buffer, at, size, 'a clearing');
    new Uint8Array(buffer.bytes, at, size).fill(0);
  },
  copyBufferToBuffer(from, at, to, into, size) {
    [at] = room(from, at, size, 'a copy');
    [into, size] = room(to, into, size, 'a copy');
    new Uint8Array(to.bytes).set(new Uint8Array(from.bytes, at, size), into);
  },
  finish: () => ({}),
});

const device = () => ({
  features: new Set(),
  lost: new Promise(() => {}),
  queue: {
    submit() {},
    onSubmittedWorkDone: async () => {},
    writeBuffer(buffer, at, data) {
      if (data.byteLength % 4) throw new DOMException('The data are no whole words', 'OperationError');
      [at] = room(buffer, at, data.byteLength, 'a write');
      new Uint8Array(buffer.bytes).set(new Uint8Array(data.buffer ?? data, data.byteOffset ?? 0, data.byteLength), at);
    },
  },
  addEventListener() {},
  pushErrorScope() {},
  popErrorScope: async () => null,
  createBuffer: (parts) => new FakeBuffer(parts),
  createBindGroupLayout: () => ({}),
  createPipelineLayout: () => ({}),
  createBindGroup({ entries: [{ resource: { buffer } }, { resource: uniform }] }) {
    require(buffer.usage & STORAGE && buffer.size >= 4, 'no storage');
    const { offset = 0, size = uniform.buffer.size } = uniform;
    require(uniform.buffer.usage & UNIFORM && size <= UNIFORM_BYTES, `a block of ${size} bytes`);
    require(offset % 256 === 0 && offset + size <= uniform.buffer.size, `a block at ${offset}`);
    return { uniform };
  },
  createShaderModule: ({ code }) => ({
    getCompilationInfo: async () => ({ messages: /^fn main\(/m.test(String(code)) ? [] : [{ type: 'error', message: 'no entry point', lineNum: 1 }] }),
  }),
  createComputePipelineAsync: async () => ({ kind: 'pipeline' }),
  createCommandEncoder: encoder,
});

Object.assign(globalThis, {
  GPUBufferUsage: { STORAGE, UNIFORM, COPY_SRC: 4, COPY_DST: 8, MAP_READ: 16, QUERY_RESOLVE: 32 },
  GPUShaderStage: { COMPUTE: 4 },
  GPUMapMode: { READ: 1 },
});

export const gpu = {
  requestAdapter: async () => ({ limits: LIMITS, features: new Set(), info: { vendor: 'none' }, requestDevice: async () => device() }),
};
