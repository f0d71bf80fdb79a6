"""Language models that people have: text in, text out.

Input: a GGUF file and its bundle on a host.  Output: answers, streamed.  What is computed is a
matter of `frontend/gguf` and the compiler; here are words, templates and choices.
"""

from tilewright.language.cache_session import CacheSession, Run
from tilewright.language.language_model import Completion, Language, LanguageModel
from tilewright.language.sampling import Sampling
from tilewright.language.template import Message

__all__ = ["CacheSession", "Completion", "Language", "LanguageModel", "Message", "Run", "Sampling"]
