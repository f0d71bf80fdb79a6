// The part of tuning that differs between devices: each other file of this folder is for one kind of device and is loaded on demand.

/** @type {Tune.BackendOf} */
export const backendOf = async ({ parts: { device } }) => (device === 'webgpu' ? import('./webgpu.js') : import('./wasm.js'));
