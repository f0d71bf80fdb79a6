// Runs a bundle on one thread and on two, tunes it for a few rounds, runs it again, and shows what came of it.
// Input: the bundle in public/model.  Output: JSON in the page.  Where kernels come from: ?tune=folder, from
// what `tilewright build --static` wrote beside the bundle; ?tune=client, from the compiler in the page.

import { load } from 'tilewright-web';
import { tune } from 'tilewright-web/tune';
import { folderSource } from 'tilewright-web/tune/sources/folder';
import { pyodideSource } from 'tilewright-web/tune/sources/pyodide';

const PUBLIC = import.meta.env.BASE_URL;
const MODEL = `${PUBLIC}model/`;
const SOURCES = {
  folder: () => folderSource(`${MODEL}tuning/`),
  client: () => pyodideSource({ bundle: MODEL, pyodide: `${PUBLIC}pyodide/` }),
};

/** Numbers for inputs of any fixed size. */
function filled({ inputs }) {
  return Object.fromEntries(inputs.map(({ name, shape }) => {
    const length = shape.reduce((product, size) => product * size, 1);
    return [name, Float32Array.from({ length }, (_, at) => Math.sin(at))];
  }));
}

async function run(engine) {
  const { outputs } = await engine.run(filled(engine.info));
  return { threads: engine.info.features.threads, y: Array.from(outputs.y.data) };
}

async function work() {
  const runs = [];
  for (const threads of [1, 2]) {
    const engine = await load(MODEL, { threads });
    runs.push(await run(engine));
    engine.dispose();
  }
  const engine = await load(MODEL);
  const source = SOURCES[new URLSearchParams(location.search).get('tune') ?? 'folder']();
  const { rounds } = await tune(engine, { source, budget: 1, rounds: 3 });
  runs.push(await run(engine));
  return { runs, rounds };
}

const result = await work().catch((error) => ({ error: String(error) }));
document.getElementById('result').textContent = JSON.stringify(result);
