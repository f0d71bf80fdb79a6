// Helpers for the page's elements.
// Input: an id, or a tag with properties, attributes or children.  Output: an element.

const SVG = 'http://www.w3.org/2000/svg';

/**
 * @param {string} id
 * @returns {any} the caller knows the element's type
 */
export function element(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`The page has no element #${id}`);
  return found;
}

/**
 * @param {string} tag
 * @param {Record<string, string>} properties
 * @param {...(Node | string)} children
 */
export function make(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  if (children.length) made.append(...children);
  return made;
}

/**
 * An element of a drawing.
 * @param {string} tag
 * @param {Record<string, string | number>} attributes
 */
export function draw(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  return made;
}

/**
 * Words in a drawing.
 * @param {number} x
 * @param {number} y
 * @param {string} textContent
 * @param {'start' | 'middle' | 'end'} anchor which part of them is at x
 */
export function drawText(x, y, textContent, anchor) {
  return Object.assign(draw('text', { x, y, 'text-anchor': anchor }), { textContent });
}
