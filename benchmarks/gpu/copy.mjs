// What a GPU's memory can do through WebGPU: a kernel that copies a buffer, and one that only reads it.
// Input: the folder of the npm package `webgpu`, words for Dawn, bytes of the buffer.  Output: one line of JSON: the adapter, its
// limits, milliseconds of each run.  kernels.py sets this beside kernels of Tilewright, whose engine is not used here.

import { gpuOf } from '../../tilewright/web/host/dawn_globals.mjs';

const [folder, words, asked] = process.argv.slice(2);
const GROUP = 256, EACH = 8, VECTOR = 16;
const REPEATS = 10, RUNS = 20, WARM_MS = 400;

const gpu = await gpuOf(folder, words.split(' ').filter(Boolean));
const adapter = await gpu.requestAdapter();
if (!adapter) throw new Error('Dawn finds no adapter');
const { maxBufferSize, maxStorageBufferBindingSize, maxComputeWorkgroupStorageSize, maxComputeInvocationsPerWorkgroup } = adapter.limits;
const limits = { maxBufferSize, maxStorageBufferBindingSize, maxComputeWorkgroupStorageSize, maxComputeInvocationsPerWorkgroup };
const device = await adapter.requestDevice({ requiredLimits: limits });
// A multiple of what one workgroup takes, and no more groups than one dispatch may have.
const unit = GROUP * EACH * VECTOR;
const groups = Math.min(65535, Math.floor(Math.min(Number(asked), limits.maxStorageBufferBindingSize) / unit));
const bytes = groups * unit;

const { STORAGE, COPY_DST, COPY_SRC, MAP_READ } = GPUBufferUsage;
const [from, to] = [0, 1].map(() => device.createBuffer({ size: bytes, usage: STORAGE | COPY_DST | COPY_SRC }));
const chunk = Uint32Array.from({ length: 1 << 20 }, () => Math.random() * 2 ** 32);
for (let at = 0; at < bytes; at += chunk.byteLength) device.queue.writeBuffer(from, at, chunk, 0, Math.min(chunk.length, (bytes - at) / 4));

const head = `@group(0) @binding(0) var<storage, read> a: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> b: array<vec4<u32>>;
@compute @workgroup_size(${GROUP}) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  var n = id.x;`;
const stride = groups * GROUP;
const KERNELS = {
  copy: `${head} for (var i = 0u; i < ${EACH}u; i++) { b[n] = a[n]; n += ${stride}u; } }`,
  // The store is never reached, but the compiler cannot know.
  read: `${head} var sum = vec4<u32>(); for (var i = 0u; i < ${EACH}u; i++) { sum ^= a[n]; n += ${stride}u; } if (all(sum == vec4(7u, 1u, 7u, 3u))) { b[id.x] = sum; } }`,
};

/** @param {string} code */
async function timed(code) {
  const pipeline = await device.createComputePipelineAsync({ layout: 'auto', compute: { module: device.createShaderModule({ code }), entryPoint: 'main' } });
  const entries = [from, to].map((buffer, binding) => ({ binding, resource: { buffer } }));
  const bindings = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
  const run = async () => {
    const start = performance.now();
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, bindings);
    for (let n = 0; n < REPEATS; n++) pass.dispatchWorkgroups(groups);
    pass.end();
    device.queue.submit([encoder.finish()]);
    await device.queue.onSubmittedWorkDone();
    return (performance.now() - start) / REPEATS;
  };
  const end = performance.now() + WARM_MS;
  while (performance.now() < end) await run();
  const found = [];
  for (let n = 0; n < RUNS; n++) found.push(await run());
  return found;
}

/** @type {Record<string, number[]>} */
const milliseconds = {};
for (const [name, code] of Object.entries(KERNELS)) milliseconds[name] = await timed(code);

const back = device.createBuffer({ size: 4 * 1024, usage: MAP_READ | COPY_DST });
const encoder = device.createCommandEncoder();
encoder.copyBufferToBuffer(to, bytes - 4096, back, 0, 4096);
device.queue.submit([encoder.finish()]);
await back.mapAsync(GPUMapMode.READ);
const last = (bytes / 4 - 1024) % chunk.length;
const right = new Uint32Array(back.getMappedRange()).every((word, at) => word === chunk[last + at]);
if (!right) throw new Error('The copy is wrong');

const { vendor, architecture, device: name, description, isFallbackAdapter, subgroupMinSize, subgroupMaxSize } = adapter.info;
console.log(JSON.stringify({
  adapter: { vendor, architecture, device: name, description, software: isFallbackAdapter, subgroups: [subgroupMinSize, subgroupMaxSize], limits, features: [...adapter.features].sort() },
  bytes, milliseconds,
}));
process.exit();
