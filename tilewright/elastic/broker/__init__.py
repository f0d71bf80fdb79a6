"""Models of several processes on one GPU: a broker that decides, clients that run.

Without MPS a GPU runs kernels of one process at a time; the broker then decides whose turn it is,
and normal kernels still leave within a chunk.
"""

from tilewright.elastic.broker.client import RemoteCoordinator
from tilewright.elastic.broker.server import Broker
from tilewright.elastic.broker.words import FileWord, GpuWord, SharedWord, file_of, opened

__all__ = [
    "Broker", "FileWord", "GpuWord", "RemoteCoordinator", "SharedWord", "file_of", "opened",
]  # fmt: skip
