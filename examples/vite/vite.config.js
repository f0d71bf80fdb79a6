// Browsers give threads only to pages that came with these headers; without them one thread is used.
const headers = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Embedder-Policy': 'require-corp',
};

export default {
  server: { headers },
  preview: { headers },
};
