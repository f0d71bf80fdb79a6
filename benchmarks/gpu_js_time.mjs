// How long JavaScript works for a run on WebGPU: the engine's own code, in one thread, from the inputs to the last submission and
// from the device's answer to the outputs.  What the device takes in between is not counted.
// Input: the folder of the npm package `webgpu`, words for Dawn, a bundle's address, runs.  Output: one line of JSON: milliseconds of
// each run, and how much of them are Dawn's own finish() and submit(), which a browser does in another process.

import { become, gpuOf } from '../tilewright/web/host/dawn_globals.mjs';

const [folder, words, address, asked] = process.argv.slice(2);
const WARM = 20;
become(address, await gpuOf(folder, words.split(' ').filter(Boolean)));

/** Milliseconds in Dawn's calls of a run, and how many dispatches it has. */
let [inside, dispatches] = [0, 0];
/** When the run began to wait, and when it went on. */
let [waits, goes] = [0, 0];

/** @param {any} prototype @param {string} name @param {(call: () => any) => any} way */
function wrap(prototype, name, way) {
  const original = prototype[name];
  prototype[name] = function (/** @type {any[]} */ ...given) {
    return way(() => original.apply(this, given));
  };
}
const counted = (/** @type {() => any} */ call) => {
  const start = performance.now();
  const value = call();
  inside += performance.now() - start;
  return value;
};
wrap(GPUQueue.prototype, 'submit', counted);
wrap(GPUCommandEncoder.prototype, 'finish', counted);
wrap(GPUComputePassEncoder.prototype, 'dispatchWorkgroups', (call) => {
  dispatches++;
  return call();
});
wrap(GPUBuffer.prototype, 'mapAsync', async (call) => {
  const mapped = call();
  waits = performance.now();
  await mapped;
  goes = performance.now();
});

const { loadBundle } = await import('../tilewright/web/engine/loader.js');
const { load } = await import('../tilewright/web/engine/webgpu.js');
const { checkInputs, checkOutputs, pickPlan } = await import('../tilewright/web/engine/tensors.js');
const bundle = await loadBundle(load, address, {}, { threads: 1 }, () => {});
const { info, program } = bundle;
const inputs = Object.fromEntries(info.inputs.map(({ name, dtype, shape }) => {
  const count = shape.reduce((all, size) => all * size, 1);
  return [name, { data: dtype === 'f32' ? new Float32Array(count) : new Int32Array(count).fill(1), shape }];
}));

async function run() {
  [inside, dispatches] = [0, 0];
  const start = performance.now();
  const { tensors, sizes } = checkInputs(info.inputs, inputs);
  const plan = pickPlan(info.plans, sizes);
  const wanted = checkOutputs(info.outputs, program.plans[plan].outputs, sizes, {});
  await bundle.run({ plan, sizes, tensors, wanted });
  const end = performance.now();
  return { before: waits - start, after: end - goes, dawn: inside, device: goes - waits, dispatches };
}

const runs = [];
for (let n = 0; n < WARM + Number(asked); n++) runs.push(await run());
console.log(JSON.stringify({ adapter: info.adapter.name, runs: runs.slice(WARM) }));
process.exit();
