// A scenario of buffers.mjs in Node with Dawn, where the caller's thread is this process.
// Input: Dawn's folder and words, the address of the page, a scenario's name and params.  Output: one line of JSON.

import { become, gpuOf } from '../../tilewright/web/host/dawn_globals.mjs';
import { makeKit, ON_DEVICES } from './buffers.mjs';

const [folder, words, address, name, params] = process.argv.slice(2);
become(address, await gpuOf(folder, words.split(' ').filter(Boolean)));
const { load } = await import('../../tilewright/web/engine/engine.js');
globalThis.spied = { load, workers: [], aWhile: () => new Promise((resolve) => setTimeout(resolve, 200)) };
makeKit();
console.log(JSON.stringify(await ON_DEVICES[name](JSON.parse(params))));
// Dawn may hold the process open.
process.exit();
