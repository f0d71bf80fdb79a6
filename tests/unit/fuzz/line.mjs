// Damaged answers of a tuning server, of a static build's folder, or of the compiler in the page, heard by all that reads them: sources, order, ledger, reports.
// Input: frames, or files; what the page tells.  Output: the outcome, and the candidates that came through with their digests.

import { compileWith, serve, ORIGIN, PATH } from './page.mjs';
import { classify } from '../../../tilewright/web/tune/device/device_class.js';
import { openLedger } from '../../../tilewright/web/tune/records/ledger.js';
import { openReports } from '../../../tilewright/web/tune/records/reports.js';
import { folderSource } from '../../../tilewright/web/tune/sources/folder.js';
import { openConnection } from '../../../tilewright/web/tune/sources/connection.js';
import { pyodideSource } from '../../../tilewright/web/tune/sources/pyodide.js';
import { signedSource } from '../../../tilewright/web/tune/sources/signed.js';
import { socketSource } from '../../../tilewright/web/tune/sources/socket.js';
import { openForecast } from '../../../tilewright/web/tune/loop/forecast.js';
import { barOf } from '../../../tilewright/web/tune/loop/objective.js';

/** Most candidates that a session hears. */
const MOST = 200;
const later = globalThis.setTimeout;
// Pauses between attempts, shorter than a minute, are no part of what is tried; limits of the compiler are, and it always answers.
globalThis.setTimeout = (work, wait = 0, ...rest) => later(work, wait < 60_000 ? Math.min(wait, 2) : wait, ...rest);

/** Frames that the server sends for each frame of the page. @type {(Uint8Array | {text: string})[][]} */
let frames = [];

globalThis.WebSocket = class {
  static OPEN = 1;
  readyState = 1;
  #left = [...frames];

  constructor() {
    setImmediate(() => this.onopen());
  }

  send() {
    for (const frame of this.#left.shift() ?? []) setImmediate(() => this.onmessage({ data: frame.text ?? frame.slice().buffer }));
    if (!this.#left.length) setImmediate(() => this.onclose());
  }

  close() {}
};

const record = () => ({ objective: 'latency', device: '', winners: [], checksums: {}, tried: {}, bad: {}, sound: {}, refuted: {}, unsent: [], caught: 0 });

export async function attempt({ frames: given, files, hello, device, key, compiled }, { judge, enter }) {
  enter('session');
  serve(files);
  frames = given.map((some) => some.map((frame) => (frame.text ? frame : Uint8Array.from(Buffer.from(frame, 'base64')))));
  const { said } = await judge(async () => {
    if (compiled) compileWith({ ...compiled, make: { ...compiled.make, module: compiled.make?.module && Uint8Array.from(Buffer.from(compiled.make.module, 'base64')) } });
    const plain = compiled ? pyodideSource({ bundle: `${ORIGIN}${PATH}`, compiler: `${ORIGIN}/compiler/` }) : given.length ? socketSource(`${ORIGIN}/api/tune`) : folderSource(`${ORIGIN}${PATH}tuning/`);
    const source = key ? signedSource(plain, key) : plain;
    const ledger = openLedger(record(), hello.digest, hello.objective);
    const forecast = openForecast({ ledger, objective: hello.objective, effects: new Map(), shareOf: () => 0.5 });
    const reports = openReports({ source, record: ledger.record, digest: hello.digest, on: true, save: async () => {} });
    const { signal } = new AbortController();
    const line = openConnection({ source, signal, onEvent() {}, hello: () => hello, welcomed: ({ kernels }) => {
      ledger.take(kernels);
      reports.again(ledger.offers);
      return true;
    } });
    try {
      classify(await line.classes(), device, 'x86');
      await line.open();
      for (let left = MOST; left > 0; left--) {
        const sent = await line.next();
        if (!sent) break;
        if ('done' in sent) {
          reports.tell(ledger.offers.get(sent.done), ledger.findings(sent.done));
          continue;
        }
        const { spec, candidate, needs, grains } = sent.header;
        barOf(hello.objective, needs, ledger.offers.get(spec)?.needs);
        Object.entries(grains ?? {});
        forecast.take(sent);
        forecast.next(0);
        ledger.note(spec, candidate, 'same', 1);
        forecast.learn(sent.header, 1);
        source.result({ spec, candidate, verdict: 'same' });
      }
    } finally {
      source.close();
    }
  });
  return { session: said };
}
