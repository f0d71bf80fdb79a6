// States that grow, in WebAssembly's memory.  Loaded on demand, when one is read or written; it imports nothing.
// Input: the memory, a state's place in a block, numbers to write; what it needs of other files.
// Output: the numbers that were read, or the memory, changed.

/** Bytes of a page. */
const PAGE = 65536;

/** Reads a state, or writes `data` to it. @type {T.ExchangedBlocks} */
export async function exchangedBlocks(memory, { place, data }, { part, reach, arrayOf, elementsOf }) {
  const { growth, address, shape } = place;
  const { rows, block, most, behind } = /** @type {T.Growth} */ (growth), piece = { ...place, shape: shape.with(-2, rows) };
  const there = Math.min(most, Math.floor((memory.grow(0) * PAGE - behind) / block));
  let count = data ? most : there;
  // Rows that are zero need no memory.
  while (count > there && !partsOf(place, count - 1).some(([, to, length]) => data.subarray(to, to + length).some(Boolean))) count--;
  reach(memory, behind + count * block);
  const whole = data ?? new (arrayOf(place.dtype))(elementsOf(shape));
  for (let at = 0; at < count; at++) {
    const moved = { ...piece, address: behind + at * block + address };
    const inside = data ? new whole.constructor(elementsOf(piece.shape)) : await part(memory.buffer, moved);
    for (const [from, to, length] of partsOf(place, at)) {
      if (data) inside.set(data.subarray(to, to + length), from);
      else whole.set(inside.subarray(from, from + length), to);
    }
    if (data) await part(memory.buffer, moved, inside);
  }
  return data ? null : whole;
}

/** @type {T.PartsOfBlock} */
function partsOf({ shape, growth }, block) {
  const { rows } = /** @type {T.Growth} */ (growth);
  const [room, columns] = shape.slice(-2), first = block * rows;
  return Array.from({ length: shape.slice(0, -2).reduce((product, size) => product * size, 1) }, (_, matrix) => [matrix * rows * columns, (matrix * room + first) * columns, Math.min(rows, room - first) * columns]);
}
