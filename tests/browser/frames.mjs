// Scenarios of frames as inputs of engines, for page.mjs.

/** @type {import('./scenario.mjs').Scenarios} */
export const FRAMES = {
  /**
   * Runs a model that returns its input on pictures drawn by code, each with its own options.  `device` may be `own`: of the page; `kind`: what the picture is
   * given as.  Gives outputs or the error, and whether the caller's frame is still open.
   */
  frames: ({ page }, { url, device, cases }) => page.evaluate(async (url, device, cases) => {
    const own = device === 'own' && await (await navigator.gpu.requestAdapter()).requestDevice();
    const engine = await globalThis.spied.load(url, { device: own || device });
    /** Quarters of plain colours. @param {number} width @param {number} height */
    const drawn = (width, height) => {
      const canvas = Object.assign(document.createElement('canvas'), { width, height });
      const context = canvas.getContext('2d');
      ['#f00', '#0f0', '#00f', '#cc8040'].forEach((colour, at) => {
        context.fillStyle = colour;
        context.fillRect((at % 2) * width / 2, Math.floor(at / 2) * height / 2, width / 2, height / 2);
      });
      return canvas;
    };
    const image = async (/** @type {HTMLCanvasElement} */ canvas) => {
      const made = new Image();
      made.src = canvas.toDataURL();
      await made.decode();
      return made;
    };
    const kinds = {
      canvas: (/** @type {any} */ canvas) => canvas, image, bitmap: (/** @type {any} */ canvas) => createImageBitmap(canvas),
      frame: (/** @type {any} */ canvas) => new VideoFrame(canvas, { timestamp: 0 }),
    };
    const found = [];
    for (const { kind = 'canvas', size: [width, height], closed = false, options = {} } of cases) {
      const frame = await kinds[kind](drawn(width, height));
      if (closed) frame.close();
      try {
        const { outputs } = await engine.run({ x: { frame, ...options } });
        const { steps } = await engine.profile({ runs: 1 });
        const again = await engine.run({ x: { frame, ...options } });
        const same = again.outputs.y.data.every((value, at) => value === outputs.y.data[at]);
        found.push({ y: Array.from(outputs.y.data), same, steps: steps.length, open: (frame.displayWidth ?? frame.width) > 0 });
      } catch (error) {
        found.push({ error: JSON.parse(JSON.stringify(error)) });
      }
    }
    engine.dispose();
    return found;
  }, url, device, cases),
};
