"""A page with a made-up engine, trial worker and storage, for sessions of web/tune in Node."""

from __future__ import annotations

from clock import CLOCK

#: `given` and `acts` say what happens; `session()` tunes; `state()` is what is known then.
PAGE = (
    CLOCK
    + """
freely();
const given = <given>;
Object.defineProperty(globalThis, 'navigator', { value: { userAgent: 'Firefox' }, configurable: true });

const stored = new Map();
globalThis.caches = {
  async open() {
    return {
      match: async (key) => stored.get(key)?.clone(),
      delete: async (key) => stored.delete(key),
      async put(key, response) {
        if (given.full) throw new Error('no space left');
        stored.set(key, response);
      },
    };
  },
};

const { EngineError } = await import('TUNE/../engine/errors.js');
const { sha256 } = await import('TUNE/../engine/files.js');
const { tune } = await import('TUNE/tuner.js');
const { forget, restore } = await import('TUNE/records/persist.js');
const { keep, recall } = await import('TUNE/records/device_record.js');

/** What tests do at some moments. */
const acts = {};
// The smallest tile kernel that there is; candidates tell by their scratch memory which they are.
const code = Uint8Array.from(KERNEL);
const digest = await sha256(code);
const log = [];
const inUse = new Map();
const lent = new Set();
const plans = [{ dims: {}, address: 0, steps: [{ spec: 0, kernel: 'k', node: 'n', flops: 1, bytes: 1 }] }];
const words = new TextEncoder().encode(JSON.stringify([{ spec: { buffers: [['f32', 1, 0, ['rows']]], stages: [] } }]));
const manifest = { plans, kernels: 'kernels', weights: { bytes: 0 } };
const program = {
  plans, slots: 1, builds: [{ variant: 'arm', code: 'code', plans: ['image'] }], memory: { bytes: 65536, weights: 0, scratch_bytes: 1000 },
};
const timeOf = (spec) => given.times?.[inUse.get(spec)] ?? 1;
/** The engine; another one after a new start. */
const made = () => ({
  onjob() {},
  info: {
    digest: 'digest', tool: 'tool', plans: [{ dims: {}, flops: 1 }], url: given.url ?? 'https://a.example/bundles/m/bundle.json', features: {},
    variant: { name: 'arm', features: [], registers: 31 },
  },
  parts: { manifest, program, limits: {}, again, lent, memory: null, file: async (name) => (name === 'kernels' ? words : new ArrayBuffer(256)) },
  states: { names: [] },
  dispose() {
    acts.dispose?.();
    engine.onjob(-1);
  },
  async swap(changes) {
    log.push(changes.map(({ module, scratch }) => (module ? scratch : 0)));
    await acts.swap?.(changes);
    await sleep(1);
    for (const { spec, module, scratch } of changes) {
      if (module) inUse.set(spec, scratch);
      else inUse.delete(spec);
    }
  },
  async profile() {
    await acts.profile?.();
    return { steps: [{ ...plans[0].steps[0], step: 0, milliseconds: 1 }] };
  },
  time: async ({ runs }) => ({ milliseconds: Array.from({ length: runs }, () => timeOf(0)) }),
  async run() {
    const scratch = inUse.get(0);
    if (given.traps?.includes(scratch)) throw new EngineError('kernel-trap', 'trap', 'hint', { spec: 0, tuned: true });
    await acts.run?.();
    return scratch ?? 0;
  },
});
async function again() {
  inUse.clear();
  log.push('again');
  acts.again?.();
  return made();
}
const engine = made();
const page = () => engine.run().catch(({ code }) => code);

globalThis.Worker = class {
  #listen = {};
  #held = [];
  #rests = 0;
  addEventListener(name, listener) { this.#listen[name] = listener; }
  terminate() { this.#listen.message = () => {}; }
  #say() {
    while (!this.#rests && this.#held.length) this.#listen.message({ data: this.#held.shift() });
  }
  postMessage({ id, kind, params, pause }) {
    if (pause !== undefined) {
      this.#rests = pause;
      setTimeout(() => this.#say(), 1);
      return;
    }
    const verdict = { verdict: 'faster', ratio: 1.5, low: 1.4, high: 1.6, milliseconds: given.milliseconds ?? 10, stages: {}, resolution: 0, ...given.outcome };
    const refuted = params?.judge && given.refuted;
    const answer = { open: {}, get l1() { return given.l1?.shift() ?? 32768; }, attempt: { module: new WebAssembly.Module(code), ...verdict, ...(refuted && { refuted }) } };
    Promise.resolve(acts[kind]?.(params)).then(() => sleep(1)).then(() => {
      this.#held.push({ id, value: answer[kind] });
      this.#say();
    });
  }
};

const needsOf = (candidate) => (given.needs ? { traffic: 1, scratch: given.needs[candidate] } : null);
/** Candidates of the one kernel. */
const source = {
  origin: given.origin ?? 'https://a.example',
  log: { results: [], reports: [], hellos: [] },
  classes: async () => (given.classes ?? [['class', 0]]).map(([id, least]) => ({ id, kind: 'wasm', vendor: '', architecture: '', features: [], least_l1: 1024 * least, variant: 'arm' })),
  async open(hello) {
    const { tried } = hello;
    this.log.hellos.push(hello);
    const own = (candidate) => candidate === 0 && given.default !== 0;
    this.left = given.candidates.filter((candidate) => !tried[0].includes(candidate) && (!hello.check || own(candidate)));
    return { compiler: 'test', kernels: [{ spec: 0, kind: 'k', shape: 's', checksum: 'c', count: 99, default: given.default === undefined ? 0 : given.default, needs: needsOf(0), gold: given.gold ?? null }] };
  },
  async next() {
    if (!this.left.length) return null;
    const candidate = this.left.shift();
    return { module: code, header: { spec: 0, candidate, mark: 'lite', schedule: given.schedules?.[candidate] ?? 's', checksum: 'c', digest, tiles: 1, grains: {}, scratch: candidate, needs: needsOf(candidate), bytes: 8 } };
  },
  result(result) { this.log.results.push(result); },
  async report(report) {
    this.log.reports.push(report.top.map(({ candidate }) => candidate));
    this.log.told = [...this.log.told ?? [], report];
    await acts.report?.();
  },
  close() {},
};
const events = [];
const session = (options) => tune(engine, { source, budget: 1, onEvent: (event) => events.push(event), ...options });
async function state() {
  const { winners, tried, bad } = await recall(engine);
  return {
    inUse: inUse.get(0) ?? 0, winner: winners[0]?.candidate ?? 0, tried: tried[0] ?? [], bad: bad[0] ?? [],
    log, ...source.log, events: events.map(({ type }) => type),
    verdicts: events.filter(({ type }) => type === 'trial').map(({ verdict }) => verdict),
  };
}
const out = async (more) => {
  console.log(JSON.stringify({ ...await state(), ...more }));
  process.exit(0);
};
"""  # noqa: E501
)
