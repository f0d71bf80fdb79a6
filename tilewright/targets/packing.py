"""The packing of weights that kernels of all targets expect: data for graph/passes/pack.py.

No candidate changes a layout, so one packing fits all register tiles: a wider tile reads several
panels.
"""

from __future__ import annotations

from tilewright.kernel.layout import Blocks, Groups, Packing, Panels, Taps

#: Panels of two vectors; groups as one dot product reads them; fewer than 4 columns fill no vector.
PACKING = Packing(floats=Panels(8), integers=Groups(4, 8), taps=Taps(4), blocks=Blocks(8), few=4)
