// Types of the part of @huggingface/tokenizers that the demo page uses.

export class Tokenizer {
  constructor(tokenizer: object, config: object);
  encode(text: string): { ids: number[]; tokens: string[]; attention_mask: number[] };
}
