// Scenarios of exchanging kernels, for page.mjs.

/** @type {import('./scenario.mjs').Scenarios} */
export const SWAPPING = {
  /**
   * Loads a bundle, and after each round of changes runs it with every input; what goes wrong is told.
   */
  swaps: ({ page }, { url, inputs, rounds, options = {}, brief = false }) => page.evaluate(async (url, inputs, rounds, options, brief) => {
    const { tuning, spied } = globalThis;
    const { load } = spied;
    const engine = await load(url, options);
    globalThis.engine = engine;
    const run = async () => {
      const found = [];
      // Twice: short plans run in the worker first, then in the page.
      for (const given of [...inputs, ...inputs]) {
        const filled = spied.filled(given);
        if (brief) for (const name of Object.keys(filled)) filled[name] = filled[name].map((_, at) => at % 7);
        found.push(tuning.plain((await engine.run(filled)).outputs));
      }
      // Of long results some elements and the sum.
      if (brief) return found.map((outputs) => outputs.map((data) => [...data.filter((_, at) => at % 997 === 0), data.reduce((sum, value) => sum + value)]));
      return found;
    };
    const results = [{ outputs: await run(), error: null }];
    for (const round of rounds) {
      const changes = await Promise.all(round.map(tuning.changeOf));
      const error = await engine.swap(changes).then(() => null, (thrown) => JSON.parse(JSON.stringify(thrown)));
      results.push({ outputs: await run(), error });
    }
    return { results, variant: engine.info.variant.name, threads: engine.info.features.threads };
  }, url, inputs, rounds, options, brief),

  /** Which code variant the browser takes. */
  variant: ({ page }, { url }) => page.evaluate(async (url) => {
    const { load } = globalThis.spied;
    const engine = await load(url);
    const { name } = engine.info.variant;
    engine.dispose();
    return name;
  }, url),

  /** Asks for a swap while runs are queued; gives the first element of each result, in the order of the calls. */
  swapInQueue: ({ page }, { url, inputs, change, options = {} }) => page.evaluate(async (url, given, change, options) => {
    const { tuning, spied } = globalThis;
    const { load } = spied;
    const engine = await load(url, options);
    const inputs = spied.filled(given);
    const changes = [await tuning.changeOf(change)];
    const runs = Array.from({ length: 6 }, () => engine.run(inputs));
    const swapped = engine.swap(changes);
    // The page looks for the swap's code first; what is asked for after that comes later.
    await new Promise((resolve) => setTimeout(resolve, 0));
    await swapped;
    runs.push(...Array.from({ length: 6 }, () => engine.run(inputs)));
    const back = engine.swap([{ spec: change.spec, module: null }]);
    await back;
    runs.push(engine.run(inputs));
    return (await Promise.all(runs)).map(({ outputs: { y: { data } } }) => [data[0], data.at(-1)]);
  }, url, inputs, change, options),

  /** Swaps, then a worker of the pool dies; gives whether all of the results after that are the swapped kernel's. */
  swapThenDeath: ({ page }, { url, inputs, change, mark }) => page.evaluate(async (url, given, change, mark) => {
    const { tuning, spied } = globalThis;
    const { load, workers, outcome, soon } = spied;
    const inputs = spied.filled(given);
    const tickets = () => Atomics.load(new Int32Array(engine.parts.memory.buffer), 512 + 16 * 2 + 1);
    const engine = await load(url, { threads: 3 });
    await engine.run(inputs);
    await engine.swap([await tuning.changeOf(change)]);
    const count = workers.length;
    workers.at(-1).terminate();
    while (workers.length === count || !workers.at(-1).heard) {
      await outcome(engine.run(inputs));
      await soon();
    }
    const [all, before] = [[], tickets()];
    // The new one has taken part in some of them.
    while (all.length < 10 || tickets() === before) {
      const { data } = (await engine.run(inputs)).outputs.y;
      all.push(data.every((value) => value === mark));
    }
    await engine.swap([{ spec: change.spec, module: null }]);
    const { data } = (await engine.run(inputs)).outputs.y;
    return { all, back: data.every((value) => value !== mark), workers: workers.length - count };
  }, url, inputs, change, mark),

  /**
   * Swaps while the last worker of the pool is dead before it said a word (`stillborn`), `dies`, or is `deaf`;
   * gives the outcomes of the swaps, the values of all results, and whether it took part when it had none or all of its messages.
   */
  swapsInTrouble: ({ page }, { url, inputs, changes, how }) => page.evaluate(async (url, given, sent, how) => {
    const { tuning, spied } = globalThis;
    const { load, workers, outcome, until } = spied;
    const LAST = 2;
    let deaf = false;
    let stillborn = false;
    const held = [];
    // Stands between the engine's worker and the last one of the pool.
    globalThis.Worker = class extends Worker {
      constructor(/** @type {[any, any]} */ ...parts) {
        super(...parts);
        if (stillborn) this.terminate();
      }

      postMessage(/** @type {any} */ message, /** @type {any} */ transfer) {
        if (message.number !== LAST) return super.postMessage(message, transfer);
        const { port1, port2 } = new MessageChannel();
        message.port.onmessage = ({ data }) => {
          if (deaf) held.push(() => port2.postMessage(data));
          else port2.postMessage(data);
        };
        port2.onmessage = ({ data }) => message.port.postMessage(data);
        return super.postMessage({ ...message, port: port1 }, [port1]);
      }
    };
    const inputs = spied.filled(given);
    const [first, second, third] = await Promise.all(sent.map((/** @type {any} */ change) => tuning.changeOf(change)));
    const others = workers.length;
    const engine = await load(url, { threads: LAST + 1 });
    const run = async () => [...new Set((await engine.run(inputs)).outputs.y.data)];
    const tickets = () => Atomics.load(new Int32Array(engine.parts.memory.buffer), 512 + 16 * LAST + 1);
    const outcomes = [await outcome(engine.swap([first]))];
    const values = [await run()];
    if (how === 'stillborn') {
      stillborn = true;
      workers[others + LAST].terminate();
      await until(() => workers.length >= others + LAST + 2);
      stillborn = false;
    } else deaf = true;
    const swapping = outcome(engine.swap([second]));
    if (how === 'dies') {
      await until(() => held.length);
      workers[others + LAST].terminate();
      deaf = false;
    }
    outcomes.push(await swapping);
    const before = tickets();
    values.push(await run());
    outcomes.push(await outcome(engine.swap([third])));
    values.push(await run());
    const idle = tickets() === before;
    deaf = false;
    held.forEach((hear) => hear());
    let last;
    const seen = tickets();
    do values.push(last = await run());
    while (how !== 'stillborn' && tickets() === seen);
    outcomes.push(await outcome(engine.swap([{ spec: first.spec, module: null }])));
    return { outcomes, values, idle, last, back: await run() };
  }, url, inputs, changes, how),

  /**
   * A swap while the last worker of the pool neither answers nor ends; later it ends after all.  Gives what became
   * of the swap, values before and after, and whether all of the pool took part again.
   */
  swapBesideUndead: ({ page }, { url, inputs, changes }) => page.evaluate(async (url, given, sent) => {
    const { tuning, spied } = globalThis;
    const { load } = spied;
    const LAST = 2;
    let undead = false;
    /** @type {(() => void)[]} */
    const ends = [];
    // Stands between the engine's worker and the last one of the pool.
    globalThis.Worker = class extends Worker {
      terminate() {
        if (undead) ends.push(() => super.terminate());
        else super.terminate();
      }

      postMessage(/** @type {any} */ message, /** @type {any} */ transfer) {
        if (message.number !== LAST) return super.postMessage(message, transfer);
        const { port1, port2 } = new MessageChannel();
        message.port.onmessage = ({ data }) => undead || port2.postMessage(data);
        port2.onmessage = ({ data }) => message.port.postMessage(data);
        return super.postMessage({ ...message, port: port1 }, [port1]);
      }
    };
    const inputs = spied.filled(given);
    const [first, second] = await Promise.all(sent.map((/** @type {any} */ change) => tuning.changeOf(change)));
    const engine = await load(url, { threads: LAST + 1 });
    const run = async () => [...new Set((await engine.run(inputs)).outputs.y.data)];
    const tickets = () => [1, LAST].map((worker) => Atomics.load(new Int32Array(engine.parts.memory.buffer), 512 + 16 * worker + 1));
    const outcomes = [await spied.outcome(engine.swap([first]))];
    const values = [await run()];
    undead = true;
    outcomes.push(await spied.outcome(engine.swap([second])));
    const alone = tickets();
    values.push(await run());
    const idle = tickets().every((count, at) => count === alone[at]);
    undead = false;
    ends.forEach((end) => end());
    const before = tickets();
    const back = () => tickets().every((count, at) => count !== before[at]);
    while (!back()) {
      values.push(await run());
      await spied.soon();
    }
    return { outcomes, values, idle };
  }, url, inputs, changes),

  /** Swaps while runs are held back, again and again; gives what came of it, and the values of the runs after each. */
  swapsWhileHeld: ({ page }, { url, inputs, changes }) => page.evaluate(async (url, given, sent) => {
    const { tuning, spied } = globalThis;
    const { load } = spied;
    const inputs = spied.filled(given);
    const others = spied.workers.length;
    const engine = await load(url, { threads: 3 });
    const found = [];
    for (const change of await Promise.all(sent.map((/** @type {any} */ one) => tuning.changeOf(one)))) {
      await engine.run(inputs);
      engine.preempt(true);
      const swapped = await spied.outcome(engine.swap([change]));
      const run = engine.run(inputs);
      const held = await Promise.race([run.then(() => false), spied.aWhile().then(() => true)]);
      engine.preempt(false);
      found.push({ swapped, held, values: [...new Set((await run).outputs.y.data)] });
    }
    return { found, workers: spied.workers.length - others };
  }, url, inputs, changes),

  /** Runs with a kernel that traps, then with the bundle's own again. */
  swapInTrap: ({ page }, { url, inputs, change, options = {} }) => page.evaluate(async (url, given, sent, options) => {
    const { tuning, spied } = globalThis;
    const { load } = spied;
    const inputs = spied.filled(given);
    const engine = await load(url, options);
    const before = (await engine.run(inputs)).outputs.y.data;
    await engine.swap([await tuning.changeOf(sent)]);
    const error = await engine.run(inputs).catch((thrown) => JSON.parse(JSON.stringify(thrown)));
    await engine.swap([{ spec: sent.spec, module: null }]);
    const after = (await engine.run(inputs)).outputs.y.data;
    return { error, same: after.every((value, at) => value === before[at]) };
  }, url, inputs, change, options),

  /** Disposes the engine while it swaps, with runs before and after; gives the outcomes. */
  swapThenDispose: ({ page }, { url, inputs, change }) => page.evaluate(async (url, given, sent) => {
    const { tuning, spied } = globalThis;
    const { load } = spied;
    const inputs = spied.filled(given);
    const change = await tuning.changeOf(sent);
    const found = [];
    for (const wait of [0, 1, 5, 20]) {
      const engine = await load(url, { threads: 2 });
      const jobs = [engine.run(inputs), engine.swap([change])];
      await jobs[0];
      jobs.push(engine.run(inputs));
      await new Promise((resolve) => setTimeout(resolve, wait));
      engine.dispose();
      jobs.push(engine.swap([change]));
      found.push(await Promise.all(jobs.map(spied.outcome)));
    }
    return found;
  }, url, inputs, change),

  /** How often `onjob` says that the engine ended: its worker dies, or it is disposed, or both. */
  endsOf: ({ page }, { url, inputs, how }) => page.evaluate(async (url, given, how) => {
    const { load, workers, outcome, filled } = globalThis.spied;
    const engine = await load(url);
    const told = [];
    let end = () => {};
    const ended = new Promise((resolve) => (end = () => resolve(null)));
    engine.onjob = (open) => {
      told.push(open);
      if (open < 0) end();
    };
    await engine.run(filled(given));
    if (how === 'kill') workers[0].terminate();
    if (how === 'error') workers[0].dispatchEvent(new ErrorEvent('error', { message: 'out of memory', cancelable: true }));
    if (how === 'dispose') engine.dispose();
    await ended;
    const later = await outcome(engine.run(filled(given)));
    engine.dispose();
    engine.dispose();
    return { ends: told.filter((open) => open < 0).length, later };
  }, url, inputs, how),

};
