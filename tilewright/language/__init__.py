"""Language models that people have: text in, text out.

Input: a GGUF file and its bundle on a host.  Output: answers, streamed.  What is computed is a
matter of `frontend/gguf` and the compiler; here are words, templates and choices.
"""

from tilewright.language.choosing import Choice
from tilewright.language.model import Answer, Language, LanguageModel
from tilewright.language.session import Run, Session
from tilewright.language.template import Message

__all__ = ["Answer", "Choice", "Language", "LanguageModel", "Message", "Run", "Session"]
