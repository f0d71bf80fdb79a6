"""Speech models as graphs: from recorded sound to the tokens of what was said.

Input: a folder with a Whisper model.  Output: `Whisper`, which makes graphs that take samples.
`log_mel.py` turns samples into features, `whisper.py` makes the graph.  `whisper_folder.py` and
`whisper_ct2.py` have the names of tensors, and `ctranslate2_file.py` reads a file format.  No file
here reads recordings or handles text.
"""

from tilewright.frontend.speech.log_mel import RATE
from tilewright.frontend.speech.whisper import COUNT, SAMPLES, Whisper
from tilewright.frontend.speech.whisper_ct2 import CT2_FILE
from tilewright.frontend.speech.whisper_folder import WhisperFolder, is_whisper_folder

__all__ = [
    "COUNT",
    "CT2_FILE",
    "RATE",
    "SAMPLES",
    "Whisper",
    "WhisperFolder",
    "is_whisper_folder",
]
