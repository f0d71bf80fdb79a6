// How long JavaScript works for a run on WebGPU in Node: the engine's own code, in one thread, from the inputs to the last
// submission and from the device's answer to the outputs.  What the device takes in between is not counted.
// Input: the folder of the npm package `webgpu`, words for Dawn, a bundle's address, warm runs, runs, and `given` where a run writes to
// the arrays of the one before.  Output: one line of JSON: the dispatches of a run, milliseconds of each, how much of them are Dawn's
// own finish() and submit(), which a browser does in another process, and what the calls that record dispatches take by themselves
// (`bare`): in Node they are Dawn's work, too.

import { become, gpuOf } from '../../tilewright/web/host/dawn_globals.mjs';
import { bare, begin, seen, spy, uncount } from './js_spy.mjs';

const [folder, words, address, warm, asked, given] = process.argv.slice(2);
become(address, await gpuOf(folder, words.split(' ').filter(Boolean)));
spy();

const { loadBundle } = await import('../../tilewright/web/engine/loader.js');
const { load } = await import('../../tilewright/web/engine/webgpu.js');
const { makePool } = await import('../../tilewright/web/engine/pool.js');
const { checkInputs, checkOutputs, pickPlan } = await import('../../tilewright/web/engine/tensors.js');
const bundle = await loadBundle(load, address, {}, { threads: 1, pool: makePool(), claim: () => null }, () => {});
const { info, program } = bundle;
const inputs = Object.fromEntries(info.inputs.map(({ name, shape }) => {
  const sizes = shape.map(Number);
  return [name, { data: new Int32Array(sizes[1]).fill(1), shape: sizes }];
}));

/** @type {Record<string, any>} */
let into = {};

async function run() {
  begin();
  const start = performance.now();
  const { tensors, sizes } = checkInputs(info, inputs);
  const plan = pickPlan(info.plans, sizes);
  const wanted = checkOutputs(info.outputs, program.plans[plan].outputs, sizes, into);
  const { outputs = [] } = await bundle.run({ plan, sizes, tensors, wanted });
  const end = performance.now();
  if (given) into = Object.fromEntries(outputs.map(({ name, data }) => [name, data]));
  uncount();
  return { before: seen.waits - start, after: end - seen.goes, dawn: seen.dawn, device: seen.goes - seen.waits, bare: bare() };
}

const runs = [];
for (let n = 0; n < Number(warm) + Number(asked); n++) runs.push(await run());
console.log(JSON.stringify({ adapter: info.adapter?.name, dispatches: seen.dispatches, runs: runs.slice(Number(warm)) }));
process.exit();
