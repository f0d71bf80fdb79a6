"""The server: bundles, the browser engine, the demo page and tuning sessions.

Input: names and folders of bundles.  Output: an ASGI app (`create_app`), a blocking `serve`, or a
`BackgroundServer` for hosts and tests.  The compiler's functions are passed in (`Makers`).
"""

from tilewright.server.app import create_app
from tilewright.server.run import BackgroundServer, serve
from tilewright.server.tune import Tuning

__all__ = ["BackgroundServer", "Tuning", "create_app", "serve"]
