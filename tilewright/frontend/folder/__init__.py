"""Language models from folders as Hugging Face's libraries write them.

Input: a folder with `config.json` and safetensors files.  Output: `FolderModel`, which makes graphs
for any number of new tokens, or a typed error that names the setting, the tensor or the file.
`model_folder.py` finds the files, `config.py` reads settings, `safetensors_file.py` reads weights,
and `folder_model.py` has the names of tensors.  frontend/language makes the graph.
"""

from tilewright.frontend.folder.folder_model import FolderModel
from tilewright.frontend.folder.model_folder import (
    ModelFolder,
    is_folder,
    open_folder,
    optional_json,
)

__all__ = ["FolderModel", "ModelFolder", "is_folder", "open_folder", "optional_json"]
