// What tuning does differently on each device that an engine runs on; each file here is one of them, loaded on demand.

/** @type {Tune.BackendOf} */
export const backendOf = async ({ parts: { device } }) => (device === 'webgpu' ? import('./webgpu.js') : import('./wasm.js'));
