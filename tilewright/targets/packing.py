"""How kernels of all targets want weights to be packed: data for graph/passes/pack.py.

Candidates never change a layout, so it fits all register tiles: a wider tile reads several panels.
"""

from __future__ import annotations

from tilewright.kernel.layout import Blocks, Groups, Packing, Panels, Taps

#: Panels of two vectors; groups as one dot product takes them; fewer than 4 columns fill no vector.
PACKING = Packing(floats=Panels(8), integers=Groups(4, 8), taps=Taps(4), blocks=Blocks(8), few=4)
