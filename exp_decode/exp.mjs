import { readFileSync } from 'node:fs';
import { gpuOf } from '../tilewright/web/host/dawn_globals.mjs';
const [folder, words, file] = process.argv.slice(2);
const { cases, tiny } = JSON.parse(readFileSync(file, 'utf8'));
const gpu = await gpuOf(folder, words.split(' ').filter(Boolean));
const adapter = await gpu.requestAdapter();
const limits = Object.fromEntries(['maxBufferSize', 'maxStorageBufferBindingSize', 'maxComputeWorkgroupStorageSize', 'maxComputeInvocationsPerWorkgroup'].map((n) => [n, adapter.limits[n]]));
const device = await adapter.requestDevice({ requiredLimits: limits, requiredFeatures: ['timestamp-query', 'subgroups', 'shader-f16'].filter((n) => adapter.features.has(n)) });
device.onuncapturederror = (e) => console.log('ERROR', e.error.message.slice(0, 300));
console.log(adapter.info.description, [...(gpu.wgslLanguageFeatures ?? [])].filter((n) => n.includes('packed')).join());
const { STORAGE, COPY_DST, COPY_SRC, MAP_READ, UNIFORM, QUERY_RESOLVE } = GPUBufferUsage;
const TOTAL = tiny ? 64 << 20 : 1200 << 20;
const memory = device.createBuffer({ size: TOTAL, usage: STORAGE | COPY_DST | COPY_SRC });
const bank = device.createBuffer({ size: TOTAL, usage: STORAGE | COPY_DST });
const layout = device.createBindGroupLayout({ entries: [
  { binding: 0, visibility: GPUShaderStage.COMPUTE, buffer: { type: 'storage' } },
  { binding: 1, visibility: GPUShaderStage.COMPUTE, buffer: { type: 'uniform', hasDynamicOffset: true } },
  { binding: 2, visibility: GPUShaderStage.COMPUTE, buffer: { type: 'read-only-storage' } }] });
const pipelineLayout = device.createPipelineLayout({ bindGroupLayouts: [layout] });
const uniform = device.createBuffer({ size: 256 * 64, usage: UNIFORM | COPY_DST });
const group = device.createBindGroup({ layout, entries: [{ binding: 0, resource: { buffer: memory } }, { binding: 1, resource: { buffer: uniform, size: 256 } }, { binding: 2, resource: { buffer: bank } }] });
const set = device.createQuerySet({ type: 'timestamp', count: 2 });
const into = device.createBuffer({ size: 16, usage: QUERY_RESOLVE | COPY_SRC });
const back = device.createBuffer({ size: 1 << 17, usage: MAP_READ | COPY_DST });
async function readWords(from, at, size) {
  const e = device.createCommandEncoder(); e.copyBufferToBuffer(from, at, back, 0, size); device.queue.submit([e.finish()]);
  await back.mapAsync(MAP_READ === 1 ? GPUMapMode.READ : GPUMapMode.READ, 0, size); const out = back.getMappedRange(0, size).slice(0); back.unmap(); return out;
}
const median = (v) => [...v].sort((a, b) => a - b)[v.length >> 1];
const random = new Uint32Array(1 << 20).map(() => Math.random() * 2 ** 32);
const half = () => 0x2000 + Math.floor(Math.random() * 0x800); // about 0.01
const scalesH = new Uint32Array(1 << 20).map(() => half() | half() << 16);
const scalesF = new Float32Array(1 << 20).map(() => 0.008 + 0.008 * Math.random());
const pad = (n) => Math.ceil(n / 64) * 64;
async function make(code) {
  return device.createComputePipelineAsync({ layout: pipelineLayout, compute: { module: device.createShaderModule({ code }), entryPoint: 'main' } });
}
let reference = null, shapeNow = '', places = null;
async function clock(pipeline, groups, layers, runs = 5, target = tiny ? 1 : 6) {
  const once = async (times) => {
    const e = device.createCommandEncoder();
    const pass = e.beginComputePass({ timestampWrites: { querySet: set, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 } });
    pass.setPipeline(pipeline);
    for (let n = 0; n < times; n++) { pass.setBindGroup(0, group, [256 * (n % layers)]); pass.dispatchWorkgroups(...groups); }
    pass.end(); e.resolveQuerySet(set, 0, 2, into, 0); device.queue.submit([e.finish()]);
    const [a, b] = new BigUint64Array(await readWords(into, 0, 16));
    return Number(b - a) / 1e3 / times;
  };
  let times = layers, us = await once(times);
  const end = performance.now() + (tiny ? 5 : 90);
  while (performance.now() < end) { us = await once(times); times = Math.min(4000, Math.max(layers, Math.ceil(target * 1e3 / us / layers) * layers)); }
  const found = []; for (let n = 0; n < runs; n++) found.push(await once(times));
  return median(found);
}
function blocks(list) { list.forEach((b, n) => device.queue.writeBuffer(uniform, 256 * n, Uint32Array.from(b))); }
// 1. what a dispatch costs
for (const [name, threads, groups] of [['empty 1 group', 64, 1], ['empty 132 groups', 256, 132], ['empty 1376 groups', 256, 1376]]) {
  const p = await make(`@group(0) @binding(0) var<storage, read_write> memory: array<u32>; @group(0) @binding(1) var<uniform> u: vec4<u32>; @compute @workgroup_size(${threads}) fn main(@builtin(global_invocation_id) id: vec3<u32>) { memory[id.x] = memory[id.x] + 1u; }`);
  console.log(name, (await clock(p, [groups], 1)).toFixed(2), 'us a dispatch');
}
// 2. copy and read
const G = tiny ? 64 : 16384;
for (const [name, body, moved] of [['copy', 'b[n] = a[n];', 2], ['read', 'sum ^= a[n];', 1]]) {
  const p = await make(`@group(0) @binding(2) var<storage, read> a: array<vec4<u32>>; @group(0) @binding(0) var<storage, read_write> b: array<vec4<u32>>; @group(0) @binding(1) var<uniform> u: vec4<u32>;
  @compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) { var n = id.x; var sum = vec4<u32>(); for (var i = 0u; i < 8u; i++) { ${body} n += ${G * 256}u; } if (all(sum == vec4(7u, 1u, 7u, 3u))) { b[id.x] = sum; } }`);
  const us = await clock(p, [G], 1);
  console.log(name, (moved * G * 256 * 8 * 16 / us / 1e3).toFixed(0), 'GB/s');
}
// 3. the cases
const LARGE = 20000;
const keys = new Float32Array(1 << 20).map(() => Math.random() * 2 - 1);
for (const c of cases) {
  const { sizes, fills } = c;
  const large = sizes.reduce((sum, size, at) => sum + (size > LARGE ? size : 0), 0);
  const bytes = large * 4 * (c.part ?? 1), layers = large ? Math.max(1, Math.min(32, Math.floor((tiny ? 8e6 : 400e6) / (large * 4)))) : 1;
  const key = JSON.stringify([c.shape, sizes, fills]);
  if (key !== shapeNow) {
    shapeNow = key; reference = null;
    let at = 64; const take = (size) => { const here = at; at += pad(size); return here; };
    places = sizes.map((size) => Array.from({ length: size > LARGE ? layers : 1 }, () => take(size)));
    sizes.forEach((size, n) => places[n].forEach((word) => {
      const kind = fills[n];
      if (kind === 'o') return;
      for (const b of [memory, bank]) {
        if (typeof kind === 'number') device.queue.writeBuffer(b, word * 4, new Int32Array([kind]));
        else if (kind === 'x') device.queue.writeBuffer(b, word * 4, new Float32Array(size).map(() => Math.random() * 2 - 1 + Math.random() - 0.5));
        else { const source = { w: random, h: scalesH, f: scalesF, k: keys }[kind];
          for (let i = 0; i < size; i += source.length) device.queue.writeBuffer(b, (word + i) * 4, source, 0, Math.min(source.length, size - i)); }
      }
    }));
    console.log(`--- ${c.shape}, ${fills.join()}, ${layers} layers of ${(bytes / 1e6).toFixed(1)} MB`);
  }
  const start = performance.now();
  let p; try { p = await make(c.text); } catch (e) { console.log(c.name, 'FAILED', String(e.message).slice(0, 400)); continue; }
  const made = performance.now() - start;
  blocks(Array.from({ length: layers }, (_, l) => [c.invocations, ...places.map((list) => list[l % list.length])]));
  const us = await clock(p, [c.groups], layers);
  const e = device.createCommandEncoder(); const pass = e.beginComputePass(); pass.setPipeline(p); pass.setBindGroup(0, group, [0]); pass.dispatchWorkgroups(c.groups); pass.end(); device.queue.submit([e.finish()]);
  const got = new Float32Array(await readWords(memory, places[0][0] * 4, Math.min(sizes[0], 16384) * 4));
  reference ??= got;
  let d = 0, q = 0; got.forEach((v, i) => { d += (v - reference[i]) ** 2; q += reference[i] ** 2; });
  console.log(`${us.toFixed(2).padStart(8)} us ${(bytes / us / 1e3).toFixed(0).padStart(6)} GB/s  ${c.groups}x${c.threads}  err ${Math.sqrt(d / q).toExponential(1)}  pipeline ${made.toFixed(0)} ms  ${c.name}`);
}
process.exit();
