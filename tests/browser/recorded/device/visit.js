// Stands in for tune/device/visit.js: the class is what the test says.

export const browserFamily = () => (navigator.userAgent.includes('Firefox') ? 'firefox' : 'chromium');
export const addressFor = async (/** @type {string} */ url) => url;

/** @param {string} device */
export const rememberClass = (device) => {
  globalThis.remembered = device;
};
