"""Language models: text in, text out.

Input: a bundle that has a model's text assets, on a host; or a model's file or folder, for the
assets of a new bundle.  Output: answers, streamed.  Nothing is compiled here.  Assets are made by
`assets.py`, `gguf_vocabulary.py` and `folder_vocabulary.py`.  `vocabulary.py` has words,
`control_tokens.py` names of control tokens in texts, `template.py` chat templates, `sampling.py`
the choice of tokens, `logprobs.py` how likely they were, `cache_session.py` what the caches hold,
and `prompt_session.py` prompts of encoder-decoder models.  `language_model.py` and `stream.py` give
answers piece by piece.
"""

from importlib.util import find_spec

from tilewright.base.errors import UsageError

if not (find_spec("tokenizers") and find_spec("jinja2")):
    raise UsageError(
        "Language models need the packages tokenizers and jinja2",
        hint="Install them: pip install 'tilewright[language]'",
    )

from tilewright.language.assets import LanguageFacts, RoundedWeights, TextAssets, text_assets
from tilewright.language.cache_session import CacheSession, Run
from tilewright.language.folder_vocabulary import encoder_decoder_text, folder_text
from tilewright.language.gguf_vocabulary import gguf_text
from tilewright.language.language_model import Completion, Language, LanguageModel
from tilewright.language.prompt_session import PromptSession
from tilewright.language.sampling import Sampling
from tilewright.language.template import Message

__all__ = [
    "CacheSession",
    "Completion",
    "Language",
    "LanguageFacts",
    "LanguageModel",
    "Message",
    "PromptSession",
    "RoundedWeights",
    "Run",
    "Sampling",
    "TextAssets",
    "encoder_decoder_text",
    "folder_text",
    "gguf_text",
    "text_assets",
]
