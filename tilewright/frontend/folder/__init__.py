"""Language models from folders as Hugging Face's libraries write them.

Input: a folder with `config.json` and safetensors files.  Output: `FolderModel`, which makes graphs
for any number of new tokens, or a typed error that names the setting, the tensor or the file.  Text
is not its business, and the graph is in frontend/language.
"""

from tilewright.frontend.folder.folder_model import FolderModel
from tilewright.frontend.folder.model_folder import ModelFolder, is_folder, open_folder, read_json

__all__ = ["FolderModel", "ModelFolder", "is_folder", "open_folder", "read_json"]
