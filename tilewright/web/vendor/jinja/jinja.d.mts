// Types of the part of @huggingface/jinja that language/ uses.

export class Environment {
  set(name: string, value: unknown): unknown;
}
export class Interpreter {
  constructor(environment: Environment);
  run(program: object): { value: string };
}
export class Template {
  constructor(source: string);
  readonly parsed: object;
}
