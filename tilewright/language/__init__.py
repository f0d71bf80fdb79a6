"""Language models: text in, text out.

Input: a GGUF file and its bundle on a host.  Output: answers, streamed.  `frontend/gguf` and the
compiler make the model; this package has tokenizers, chat templates and sampling.
"""

from tilewright.language.cache_session import CacheSession, Run
from tilewright.language.language_model import Completion, Language, LanguageModel
from tilewright.language.sampling import Sampling
from tilewright.language.template import Message

__all__ = ["CacheSession", "Completion", "Language", "LanguageModel", "Message", "Run", "Sampling"]
