// Vets the text of a WebGPU kernel before it becomes a pipeline: it may contain only constructs of Tilewright's compiler
// (targets/wgsl/emit.py), and it must end.
// Input: the text's bytes, its invocations, features of the device.  Output: the objection, or ''; facts of a vetted text. WGSL itself
// keeps a kernel inside its bindings, and the browser validates the text as well.
//
// A kernel that never ends cannot be removed from a GPU.  So every loop must count from one number to another, nothing else may assign its
// variable, and there are no pointers; WGSL functions cannot be recursive.  An upper bound of what a kernel executes is then a sum of
// letters: a statement may be as long as the text, and a block may be empty.  Compilers inline functions, so the length after inlining is
// limited, too: each body counts once for each call.

/** Limits: bytes of a text, threads of a workgroup, letters executed by one invocation, and by all together; letters after inlining. */
const [MOST_BYTES, MOST_THREADS, MOST_LETTERS, MOST_WORK, MOST_WRITTEN] = [1 << 18, 256, 2 ** 32, 2 ** 46, 1 << 20];
/** The most functions, and loop variables, so that vetting takes bounded time. */
const [MOST_FUNCTIONS, MOST_COUNTERS] = [256, 64];
const MATRIX = 'chromium-experimental-subgroup-matrix';
/** The only allowed pointers: matrices are loaded from shared areas, and stored there.  No loop variable is an array. */
const PLACED = /\b(subgroupMatrix(?:Load|Store)<[\w<>, ]{1,80}>\()&(?=b\d{1,4}(?:\[\w{1,80}\])?, )/g;
/** The lines by which a text enables features, in this order, at its start (targets/wgsl/prelude.py). */
const ASKED = {
  'shader-f16': 'enable f16;\n',
  subgroups: 'enable subgroups;\n',
  packed_4x8_integer_dot_product: 'requires packed_4x8_integer_dot_product;\n',
  [MATRIX]: 'enable chromium_experimental_subgroup_matrix;\ndiagnostic(off, chromium.subgroup_matrix_uniformity);\n',
};
/** The only declarations that may have attributes. */
const DECLARED = [
  /^@group\(0\) @binding\(0\) var<storage, read_write> memory: array<(?:u32|(vec4)<u32>)>;$/gm,
  /^@group\(0\) @binding\(1\) var<uniform> step: Step;$/gm,
  /^@compute @workgroup_size\((\d{1,3})\)$/gm,
  /^fn main\(@builtin\(workgroup_id\) group: vec3<u32>, @builtin\(num_workgroups\) groups: vec3<u32>, @builtin\(local_invocation_index\) local: u32\) \{$/gm,
];
/** Forbidden: other loops, pointers, extensions, pipeline constants, block comments. */
const FORBIDDEN = /\b(?:loop|while|continuing|ptr|enable|requires|diagnostic|override|alias|const_assert)\b|\/\*|[=(,]\s*&|\breturn\s*&/;
/** The function that loads vectors from a memory of words (targets/wgsl/prelude.py). */
const WHOLE = /^fn four\(/m;
const PLAIN = /^[\n -~]*$/;
/** A loop from one number to another: up, or down to zero. */
const UP = /for \(var (\w+): i32 = (\d{1,9}); \1 < (\d{1,9}); \1 \+= ([1-9]\d{0,8})\) \{/y;
const DOWN = /for \(var (\w+) = (\d{1,9}); \1 >= 0; \1 -= 1\) \{/y;
/** The parts of a text that the sum needs. */
const PARTS = /\bfor\b|\bfn\s+(\w+)|\b([A-Za-z_]\w*)\s*\(|[{}]/g;

/** @type {T.GpuObjectionTo} */
export function objectionTo(bytes, tiles, features = []) {
  if (bytes.length > MOST_BYTES) return `it has ${bytes.length} bytes, more than ${MOST_BYTES}`;
  const whole = new TextDecoder().decode(bytes);
  if (!PLAIN.test(whole)) return 'it has other characters than ASCII';
  let text = bare(whole);
  for (const [name, lines] of Object.entries(ASKED)) {
    if (!text.startsWith(lines)) continue;
    if (!features.includes(name)) return `it needs ${name}, which the device was not opened with`;
    text = text.slice(lines.length);
    if (name === MATRIX) text = text.replaceAll(PLACED, '$1');
  }
  const found = FORBIDDEN.exec(text);
  if (found) return `it has '${found[0]}'`;
  const declared = DECLARED.map((line) => [...text.matchAll(line)]);
  const rest = DECLARED.reduce((left, line) => left.replaceAll(line, ''), text);
  if (declared.some(({ length }) => length !== 1) || /@|var<(?:storage|uniform)/.test(rest)) return 'its bindings or its entry point are others';
  const { group } = factsOf(whole);
  if (!(group >= 1 && group <= MOST_THREADS)) return `its workgroups have ${group} threads`;
  const counted = lettersOf(text);
  if (typeof counted === 'string') return counted;
  const { written, letters } = counted;
  if (!(written <= MOST_WRITTEN)) return `it has ${written} letters once its functions are written out, more than ${MOST_WRITTEN}`;
  // NaN, from infinitely many passes over nothing, fails these comparisons, too.
  return letters <= MOST_LETTERS && letters * tiles <= MOST_WORK ? '' : `it executes ${letters * tiles} letters`;
}

/** A text without its comments, and without the pointers of the one function that needs them. @param {string} text */
const bare = (text) => text.replaceAll(/\/\/[^\n]*/g, '').replaceAll(/\bworkgroupUniformLoad\(&(\w+)\)/g, 'workgroupUniformLoad($1)');

/** Facts of a vetted text: threads of a workgroup, and elements that it loads at once (1 or 4). @param {string} text */
export function factsOf(text) {
  const [memory, , workgroup] = DECLARED.map((line) => [...bare(text).matchAll(line)][0]);
  return { group: Number(workgroup?.[1] ?? 0), lanes: memory?.[1] || WHOLE.test(text) ? 4 : 1 };
}

/** The letters of a text after inlining, and the most that one invocation executes; or why that is not known. @param {string} text */
function lettersOf(text) {
  /** By function: its letters, those that it executes, and how often it calls others. @type {Map<string, T.Letters>} */
  const functions = new Map();
  /** @type {T.Letters} */
  let current = { length: 0, own: 0, calls: [] };
  /** How often each open block is executed, the innermost last. */
  const times = [1];
  /** By loop variable, the number of assignments in loop heads. @type {Map<string, number>} */
  const counters = new Map();
  let [next, end] = [1, 0];
  for (const { 0: part, 1: name, 2: called, index } of text.matchAll(PARTS)) {
    const now = times[times.length - 1];
    current.length += index + part.length - end;
    current.own += now * (index + part.length - end);
    end = index + part.length;
    if (part === 'for') {
      UP.lastIndex = DOWN.lastIndex = index;
      const [up, down] = [UP.exec(text), DOWN.exec(text)];
      if (!up && !down) return 'it has a loop without constant ends';
      next = up ? Math.max(0, Math.ceil((Number(up[3]) - Number(up[2])) / Number(up[4]))) : Number(down?.[2]) + 1;
      const [, counter] = up ?? down ?? [];
      counters.set(counter, (counters.get(counter) ?? 0) + (up ? 1 : 2));
    } else if (name) {
      if (functions.has(name)) return `it has two functions ${name}`;
      functions.set(name, current = { length: 0, own: 0, calls: [] });
    } else if (called) {
      // `for (` is not a call.
      if (called !== 'for') current.calls.push([called, now]);
    } else if (part === '{') {
      times.push(now * next);
      next = 1;
    } else {
      times.pop();
      if (!times.length) return 'its blocks do not close';
    }
  }
  if (functions.size > MOST_FUNCTIONS || counters.size > MOST_COUNTERS) return `it has ${functions.size} functions and ${counters.size} variables of loops`;
  for (const [counter, own] of counters) {
    const assigned = new RegExp(`\\b${counter}\\b[\\s)]*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\\+\\+|--)`, 'g');
    if ((text.match(assigned) ?? []).length !== own) return `it assigns ${counter}, which counts a loop`;
  }
  return { written: summed(functions, ({ length }) => length, () => 1), letters: summed(functions, ({ own }) => own, (often) => often) };
}

/** The sum over `main` and all functions that it calls, once for each call. @type {T.Summed} */
function summed(functions, ownOf, timesOf) {
  /** @type {Map<string, number>} */
  const sums = new Map();
  const sum = (/** @type {string} */ name) => {
    const found = functions.get(name);
    if (!found) return ownOf({ length: 1, own: 1, calls: [] });
    if (!sums.has(name)) {
      // Stays for a recursive function, which the browser refuses.
      sums.set(name, Infinity);
      sums.set(name, found.calls.reduce((all, [other, often]) => all + timesOf(often) * sum(other), ownOf(found)));
    }
    return /** @type {number} */ (sums.get(name));
  };
  return sum('main');
}
