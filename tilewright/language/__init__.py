"""Language models: text or speech in, text out.

Input: a bundle that has a model's text assets, on a host; or a model's file or folder, for the
assets of a new bundle.  Output: answers, streamed.  Nothing is compiled here.  Assets are made by
`assets.py`, `gguf_vocabulary.py`, `folder_vocabulary.py` and `speech_text.py`.  `vocabulary.py` has
words, `control_tokens.py` names of control tokens in texts, `template.py` chat templates,
`sampling.py` the choice of tokens, `lookup.py` proposals of tokens, `logprobs.py` how likely they
were, `json_schema.py` tokens that fit a JSON schema, `cache_session.py` what the caches hold,
`prompt_session.py` prompts of encoder-decoder models, `recordings.py` and
`recording_session.py` recordings.  `language_model.py`, `transcript.py`, `text_answer.py` and
`stream.py` give answers piece by piece.
"""

from importlib.util import find_spec

from tilewright.base.errors import UsageError

if not (find_spec("tokenizers") and find_spec("jinja2")):
    raise UsageError(
        "Language models need the packages tokenizers and jinja2",
        hint="Install them: pip install 'tilewright[language]'",
    )

from tilewright.language.assets import (
    LanguageFacts,
    RoundedWeights,
    SpeechFacts,
    TextAssets,
    text_assets,
)
from tilewright.language.cache_session import CacheSession, Run
from tilewright.language.folder_vocabulary import encoder_decoder_text, folder_text
from tilewright.language.gguf_vocabulary import gguf_text
from tilewright.language.language_model import Completion, Language, LanguageModel
from tilewright.language.prompt_session import PromptSession
from tilewright.language.recording_session import RecordingSession
from tilewright.language.sampling import Sampling
from tilewright.language.speech_text import speech_text
from tilewright.language.template import Message
from tilewright.language.text_answer import TextAnswer
from tilewright.language.transcript import Transcript

__all__ = [
    "CacheSession",
    "Completion",
    "Language",
    "LanguageFacts",
    "LanguageModel",
    "Message",
    "PromptSession",
    "RecordingSession",
    "RoundedWeights",
    "Run",
    "Sampling",
    "SpeechFacts",
    "TextAnswer",
    "TextAssets",
    "Transcript",
    "encoder_decoder_text",
    "folder_text",
    "gguf_text",
    "speech_text",
    "text_assets",
]
