// A damaged bundle in the engine, with all that reads it: runs, states, profiles, swaps, what the tuner asks.
// Input: files, whether memory is shared with the page.  Output: the outcome of each use.

import { serve, ORIGIN, PATH } from './page.mjs';
import { load } from '../../../tilewright/web/engine/engine.js';
import { backendOf } from '../../../tilewright/web/tune/backend/backend.js';
import { aboutKernels } from '../../../tilewright/web/tune/records/device_record.js';
import { findTargets } from '../../../tilewright/web/tune/loop/hot_kernels.js';

/** A kernel of another schedule, by device. */
const KERNELS = {
  wasm: process.env.KERNEL && new WebAssembly.Module(Buffer.from(process.env.KERNEL, 'base64')),
  webgpu: `@group(0) @binding(0) var<storage, read_write> memory: array<u32>;
struct Step { count: u32 }
@group(0) @binding(1) var<uniform> step: Step;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
}
`,
};

/** Every use of an engine; a case's inputs fit the bundle before its damage. @type {Record<string, (engine: any, given: any) => unknown>} */
const USES = {
  run: (engine, { inputs }) => ran(engine, inputs[0]),
  again: (engine, { inputs }) => ran(engine, inputs.at(-1)),
  input: (engine, { inputs }) => Object.keys(inputs[0]).map((name) => engine.input(name).length),
  states: async ({ states }) => {
    for (const name of states.names) await states.write(name, await states.read(name));
    await states.reset();
  },
  time: (engine) => engine.time({ runs: 1, warmup: 0 }),
  profile: (engine) => engine.profile({ runs: 1 }),
  assets: (engine) => Promise.all(engine.info.assets.map((name) => engine.asset(name))),
  async specs(engine) {
    const specs = await (await backendOf(engine)).openSpecs(engine);
    engine.parts.program.plans.forEach(({ steps }, plan) => steps.forEach(({ spec }, step) => {
      specs.bytesOf(spec);
      specs.gathers(spec);
      specs.facts(spec);
      specs.resultOf(plan, step);
    }));
    await specs.code();
    const pace = { job: (work) => work(), spent: 0, latest: -1 };
    return findTargets(engine, pace, specs);
  },
  about: (engine) => aboutKernels(engine),
  async swap(engine, { inputs }) {
    const grains = Object.fromEntries(engine.info.plans.map((_, plan) => [plan, 1]));
    await engine.swap([{ spec: 0, module: KERNELS[engine.parts.device], tiles: 1, grains }]);
    await ran(engine, inputs[0]);
    await engine.swap([{ spec: 0, module: null }]);
  },
};

async function ran(engine, inputs) {
  const { outputs } = await engine.run(Object.fromEntries(Object.entries(inputs).map(([name, { data, shape }]) => [name, { data: Float32Array.from(data), shape }])));
  return Object.entries(outputs).map(([name, { data, shape }]) => [name, shape, Array.from(data, Number)]);
}

/** Outcomes by use: what `judge` says of an error, or `right`. */
export async function attempt({ files, isolated, inputs, device }, { judge, enter }) {
  serve(files);
  globalThis.crossOriginIsolated = isolated;
  const found = {};
  const work = async (name, use) => {
    enter(name);
    const value = await judge(use);
    found[name] = value.said;
    return value.result;
  };
  const engine = await work('load', () => load(`${ORIGIN}${PATH}`, { threads: 1, memoryLimit: 2 ** 26, device }));
  if (!engine) return found;
  for (const [name, use] of Object.entries(USES)) await work(name, () => use(engine, { inputs }));
  engine.dispose();
  return found;
}
