// A damaged record of a device, restored into a real engine.
// Input: a bundle's files, inputs, how the stored bytes change.  Output: the outcome; `wrong` if the model then computes anything else.

import { ORIGIN, PATH, serve, stored } from './page.mjs';
import { load } from '../../../tilewright/web/engine/engine.js';
import { sha256 } from '../../../tilewright/web/engine/files.js';
import { openLedger } from '../../../tilewright/web/tune/records/ledger.js';
import { restore } from '../../../tilewright/web/tune/records/persist.js';
import { keep, recall } from '../../../tilewright/web/tune/records/device_record.js';

const loaded = () => load(`${ORIGIN}${PATH}`, { threads: 1, memoryLimit: 2 ** 26 });
const ran = async (engine, { x }) => String((await engine.run({ x: { ...x, data: Float32Array.from(x.data) } })).outputs.y.data);
/** What a device stores that tuned the bundle, and what the model gives. @type {{bytes: Uint8Array, outputs: string} | null} */
let known = null;

/** A record with a winner that is in use. */
async function made(inputs) {
  const engine = await loaded();
  const record = await recall(engine);
  const module = Uint8Array.from(Buffer.from(process.env.KERNEL, 'base64'));
  const grains = { 0: 0 };
  const outputs = await ran(engine, inputs[0]);
  // Of a kernel that no step has: its swap is refused as `input`, and all else must still be right.
  const winner = { spec: 999, candidate: 3, schedule: 's', digest: await sha256(module), module, tiles: 1, grains, scratch: 0, ratio: 1.5 };
  await keep(engine, { ...record, winners: [winner], tried: { 0: [1, 2, 3] }, bad: { 1: [4] }, checksums: { 0: 'c' } });
  const [response] = stored.values();
  known = { bytes: new Uint8Array(await response.clone().arrayBuffer()), outputs };
  engine.dispose();
}

export async function attempt({ files, inputs, isolated, edits, cut }, { judge, enter }) {
  serve(files);
  globalThis.crossOriginIsolated = isolated;
  enter('restore');
  const { said } = await judge(async () => {
    if (!known) await made(inputs);
    const damaged = known.bytes.slice(0, Math.ceil(known.bytes.length * cut));
    for (const [at, value] of edits) damaged[Math.floor(at * damaged.length)] = value;
    for (const key of stored.keys()) stored.set(key, new Response(damaged));
    const engine = await loaded();
    try {
      await restore(engine);
      const ledger = openLedger(await recall(engine), engine.info.digest, 'latency');
      ledger.take([{ spec: 0, checksum: 'c', count: 9, default: 0 }]);
      ledger.note(0, 1, 'wrong', 1);
      await keep(engine, ledger.record);
      if (await ran(engine, inputs[0]) !== known.outputs) throw new TypeError('the model computes something else');
    } finally {
      engine.dispose();
    }
  });
  return { restore: said };
}
