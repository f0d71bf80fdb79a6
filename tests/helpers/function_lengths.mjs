// How many lines the longest functions of scripts have, a class being no function but its methods.
// Input: a limit, a folder, and below it the folders to read.  Output: one line of JSON: by file and name, the lines of those above the limit.

import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseAst } from 'rolldown/parseAst';

const [limit, root, ...folders] = process.argv.slice(2);
const found = {};

/** What a node calls the function that it holds. */
const nameOf = ({ type, id, key, left }) => id?.name ?? key?.name ?? (type === 'AssignmentExpression' ? left.name ?? left.property?.name : '');

function visit(node, name, told) {
  if (!node || typeof node !== 'object') return;
  if (Array.isArray(node)) return node.forEach((one) => visit(one, name, told));
  const own = nameOf(node) || name;
  if (/Function/.test(node.type) && node.body) told(own, node);
  for (const [key, value] of Object.entries(node)) if (key !== 'parent') visit(value, own, told);
}

for (const folder of folders) {
  for (const file of await readdir(join(root, folder), { recursive: true })) {
    if (!file.endsWith('.js')) continue;
    const text = await readFile(join(root, folder, file), 'utf8');
    visit(parseAst(text), '', (name, { start, end }) => {
      const lines = text.slice(start, end).split('\n').length;
      const key = `${folder}/${file}: ${name || 'unnamed'}`;
      if (lines > Number(limit)) found[key] = Math.max(lines, found[key] ?? 0);
    });
  }
}
console.log(JSON.stringify(found));
