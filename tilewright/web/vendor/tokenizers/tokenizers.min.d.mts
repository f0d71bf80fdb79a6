// Types of the part of @huggingface/tokenizers that pages and language/ use.

export class Tokenizer {
  constructor(tokenizer: object, config: object);
  encode(text: string, options?: { add_special_tokens?: boolean }): { ids: number[]; tokens: string[]; attention_mask: number[] };
}
