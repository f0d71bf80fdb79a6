"""The server: bundles, the browser engine and the demo page over HTTP.

Input: names and folders of bundles.  Output: an ASGI app (`create_app`), a blocking `serve`, or a
`BackgroundServer` for hosts and tests.  It compiles nothing.
"""

from tilewright.server.app import create_app
from tilewright.server.run import BackgroundServer, serve

__all__ = ["BackgroundServer", "create_app", "serve"]
