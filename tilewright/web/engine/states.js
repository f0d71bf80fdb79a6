// States (values that a model keeps between runs, such as a KV cache): read, write, reset. Input: names and arrays.  Output: copies.
// Memory changes only between runs.

import { arrayOf, asDeclared, convert, elementsOf, inputError, regionOf, requireKnown, zerosOf } from './tensors.js';

/** @type {T.MakeStates} */
export function makeStates(places, enqueue, link, live) {
  /** @type {(place: T.Placed, data?: any) => Promise<any>} */
  const ask = async (place, data) => {
    live();
    return enqueue(async () => (link.memory ? exchanged(link.memory.buffer, place, data) : link.request('state', { place, data })));
  };
  return {
    names: places.map(({ name }) => name),
    async read(name) {
      const place = requireKnown(name, places, 'state');
      return asDeclared(place.declared, await ask(place));
    },
    async write(name, data) {
      const place = requireKnown(name, places, 'state');
      // A copy: the write may have to wait, and the caller's array may change.
      const array = arrayOf(place.dtype).from(convert({ ...place, dtype: place.declared }, data, 'State'));
      const [expected, found] = [elementsOf(place.shape), array.length];
      if (found !== expected) throw inputError(place, `has the wrong size: expected ${expected} elements, found ${found}`, 'Give what the shape says, row by row', { expected, found }, 'State');
      await ask(place, array);
    },
    async reset() {
      await Promise.all(places.map((place) => ask(place, zerosOf(place))));
    },
  };
}

/** Reads a state, or writes `data` to it. @type {T.StateAccess} */
export function exchanged(buffer, place, data) {
  const region = regionOf(buffer, place);
  if (!data) return region.slice();
  region.set(data);
  return null;
}
