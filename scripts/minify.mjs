// Minifies the engine, the tuner and the language models for wheels and npm, with Vite's bundler; development does not need it.
// Input: a folder with engine/, tune/, language/ and vendor/, maybe page/, and the output folder.  Output: files of the same names
// with source maps, and on stdout the imports of each, as JSON.  The engine becomes one file, engine/core.js; its
// workers run that, and its other files only re-export from it.  The other files stay separate; what
// they import of vendor/ becomes language/packages.js.

import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { rolldown } from 'rolldown';

const CORE = 'engine/core.js';
/** What language/ uses of vendor/. */
const PACKAGES = 'language/packages.js';
/** Workers run when loaded, so they must not be imported; Vite requires that code which starts them is not in them. WebGPU, other devices, frames, buffers, what is kept, exchange, generation, manifests, measurements, halves, signatures, tidying and widening load on demand. */
const APART = ['worker.js', 'pool_worker.js', 'channel.js', 'engine.js', 'devices.js', 'auto.js', 'restart.js', 'zero_inputs.js', 'gpu_worker.js', 'webgpu.js', 'gpu_device.js', 'gpu_measure.js', 'gpu_plan.js', 'gpu_runs.js', 'gpu_upload.js', 'gpu_vet.js', 'frames.js', 'gpu_frames.js', 'gpu_buffers.js', 'gpu_in_thread.js', 'gpu_tensors.js', 'changes.js', 'exchange.js', 'generate.js', 'inspect.js', 'measure.js', 'float16.js', 'state_blocks.js', 'signatures.js', 'cache_eviction.js', 'weight_decoding.js'].map((name) => `engine/${name}`);
const SERVICE_WORKER = 'page/sw.js';

const [from, into] = process.argv.slice(2).map((path) => resolve(path));

/** @param {string} folder */
async function scriptsOf(folder) {
  const found = await readdir(join(from, folder), { recursive: true });
  return found.filter((name) => name.endsWith('.js')).map((name) => `${folder}/${name}`);
}

/** @type {import('rolldown').Plugin} Vite reads a worker's type in quotes alone, where the minifier writes backticks. */
const quoted = {
  name: 'quoted',
  generateBundle(_, files) {
    for (const file of Object.values(files)) {
      if (file.type === 'chunk') file.code = file.code.replaceAll(/new Worker\(new URL\([^{]*\{[^}]*\}/g, (made) => made.replaceAll('`', '"'));
    }
  },
};

async function minify() {
  const names = (await Promise.all(['engine', 'tune', 'language'].map(scriptsOf))).flat();
  const core = names.filter((name) => name.startsWith('engine/') && !APART.includes(name)).map((name) => join(from, name));
  const bundle = await rolldown({
    input: Object.fromEntries(names.map((name) => [name, join(from, name)])),
    preserveEntrySignatures: 'strict',
  });
  const { output } = await bundle.write({
    dir: into,
    entryFileNames: '[name]',
    chunkFileNames: '[name]',
    codeSplitting: { groups: [{ name: CORE, test: (id) => core.includes(id) }, { name: PACKAGES, test: (id) => id.startsWith(join(from, 'vendor')) }] },
    minify: true,
    // What they say to bundlers of users.
    comments: { annotation: true },
    sourcemap: true,
    plugins: [quoted],
    sourcemapPathTransform: (source, map) => relative(dirname(map), join(into, 'src', relative(from, resolve(dirname(map), source)))),
  });
  await bundle.close();
  return output.flatMap((file) => (file.type === 'chunk' ? [[file.fileName, file.imports]] : []));
}

/** The service worker has a list of the files to cache; adds the new ones. */
async function renew() {
  const text = await readFile(join(from, SERVICE_WORKER), 'utf8');
  const renewed = text.replace('const FILES = [\n', `const FILES = [\n  '/${CORE}', '/${PACKAGES}',\n`);
  if (renewed === text) throw new Error(`${SERVICE_WORKER} has no list of files`);
  await mkdir(join(into, dirname(SERVICE_WORKER)), { recursive: true });
  await writeFile(join(into, SERVICE_WORKER), renewed);
}

const imports = await minify();
if (existsSync(join(from, SERVICE_WORKER))) await renew();
console.log(JSON.stringify(Object.fromEntries(imports)));
