// Packs a trial's numbers as f16, for kernels that read such buffers. Input: finite f32.  Output: words with two numbers each, the first in
// the low bits; ties and too large numbers round towards 0.

const [BIAS, FRACTION, LARGEST, SUBNORMAL] = [112 << 23, 13, 65504, 2 ** -14];

/** @type {Tune.HalvesOf} */
export function halvesOf(numbers) {
  const found = new Uint16Array(2 * Math.ceil(numbers.length / 2));
  const one = new Float32Array(1), bits = new Uint32Array(one.buffer);
  numbers.forEach((number, at) => {
    one[0] = Math.min(Math.abs(number), LARGEST);
    const size = one[0] < SUBNORMAL ? Math.floor(one[0] * 2 ** 24) : (bits[0] - BIAS) >> FRACTION;
    found[at] = size | (number < 0 ? 1 << 15 : 0);
  });
  return new Uint32Array(found.buffer);
}
