from tilewright.api.language import language_model as language_model

__version__: str
TOOL: str
