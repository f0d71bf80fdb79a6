"""Dawn in Node, as the benchmarks on WebGPU use it: how they compile, and what records say of it.

Input: Dawn.  Output: options of the compiler, facts of the machine, the adapter and the versions.
"""

from __future__ import annotations

import json
import subprocess
from types import ModuleType

from benchmarks.common import nvidia_machine, versions
from benchmarks.records import Row
from tilewright.compiler import Options
from tilewright.hosts.browser_dawn import Dawn

WGSL = Options(targets=("wgsl",))


def facts(dawn: Dawn, torch: ModuleType | None = None) -> Row:
    """What a record says of where it was measured; torch: what has cuBLAS, if that took part."""
    package = json.loads((dawn.package / "package.json").read_text())
    node = subprocess.run(
        [str(dawn.path), "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return {
        "machine": nvidia_machine(),
        "versions": versions(torch) | {"webgpu": package["version"], "node": node},
        "options": list(dawn.options),
        "adapter": dict(dawn.adapter),
    }
