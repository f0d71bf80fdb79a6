// Scenarios of the camera page, for page.mjs.  Its ids are listed in page/camera.html.

import { PATIENCE } from './scenario.mjs';

/** @type {import('./scenario.mjs').Scenarios} */
export const CAMERA = {
  /** What the page shows once it has looked at so many pictures since the last call of `unseen`, or has failed. */
  async seen({ page }, { frames = 1 }) {
    const found = await page.waitForFunction((frames) => {
      const of = (/** @type {string} */ id) => document.getElementById(id);
      const { frames: shown, areas } = of('seen').dataset;
      const { state, code } = of('status').dataset;
      if (state !== 'error' && !(state === 'ready' && Number(shown) >= frames)) return null;
      const { width, height } = of('picture');
      return JSON.stringify({
        state, code, width, height,
        status: of('status-text').textContent, hint: of('status-hint').textContent,
        text: of('seen-text').textContent, label: of('picture').getAttribute('aria-label'),
        areas: JSON.parse(areas ?? 'null'),
        labels: Array.from(document.querySelectorAll('#results > li'), (item) => [item.querySelector('.sentence').textContent, Number(item.dataset.share)]),
        rate: { ...of('rate').dataset, text: of('rate').textContent },
        device: of('device').dataset.device,
        on: of('camera').hidden,
      });
    }, { timeout: PATIENCE, polling: 20 }, frames);
    return JSON.parse(await found.jsonValue());
  },

  /** Forgets how many pictures there were. */
  unseen: ({ page }) => page.$eval('#seen', (seen) => {
    seen.dataset.frames = '0';
  }),

  /** The colour of a pixel of the picture that is shown: red, green, blue. */
  pixel: ({ page }, { x, y }) => page.$eval('#picture', (canvas, x, y) => [...canvas.getContext('2d').getImageData(x, y, 1, 1).data.slice(0, 3)], x, y),

  /** Drops a file on the picture, as from a folder. */
  drop: ({ page }, { name, base64 }) => page.$eval('#seen', (target, name, base64) => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))], name));
    for (const type of ['dragover', 'drop']) target.dispatchEvent(new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true }));
  }, name, base64),

  /** What a camera does whose plug is drawn. */
  unplug: ({ page }) => page.$eval('video', ({ srcObject }) => {
    srcObject.getVideoTracks()[0].dispatchEvent(new Event('ended'));
  }),

  /** The states of all cameras' tracks in the page. */
  cameras: ({ page }) => page.$$eval('video', (videos) => videos.map(({ srcObject }) => srcObject.getVideoTracks()[0].readyState)),

  /** As on a page that is not served safely. */
  noMediaDevices: ({ page }) => page.evaluate(() => {
    Object.defineProperty(navigator, 'mediaDevices', { value: undefined });
  }),
};
