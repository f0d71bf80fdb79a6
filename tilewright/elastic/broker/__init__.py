"""Models of several processes on one GPU: the broker decides, its clients run the models.

Without MPS a GPU runs kernels of one process at a time, so the broker decides which process may
run.  Workers of normal kernels still leave within a chunk.

`server.py` is the broker, `remote.py` the coordinator in each client, `messages.py` what they send.
`budget_word.py` is the word in memory that all processes share.
"""

from tilewright.elastic.broker.budget_word import (
    FileWord,
    GpuWord,
    SharedWord,
    file_of,
    open_budget_word,
)
from tilewright.elastic.broker.remote import RemoteCoordinator
from tilewright.elastic.broker.server import Broker

__all__ = [
    "Broker", "FileWord", "GpuWord", "RemoteCoordinator", "SharedWord", "file_of",
    "open_budget_word",
]  # fmt: skip
