// Two helpers for the page's elements.
// Input: an id, or a tag with properties and children.  Output: an element.

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
