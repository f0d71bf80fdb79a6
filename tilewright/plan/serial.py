"""Plans as plain data and back, for the bundle.

Input: a `Plan` or the JSON-like data of one.  Output: the other.  Equal plans give equal data.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.dtypes import DTYPES
from tilewright.plan.ir import Access, Plan, Step, Value

Data = Any


def plan_to_data(plan: Plan) -> dict[str, Data]:
    return {
        "dims": dict(plan.dims),
        "values": [
            {
                "kind": v.kind,
                "dtype": v.dtype.name,
                "shape": list(v.shape),
                **({"name": v.name} if v.name else {}),
                **({"tensor": v.tensor} if v.tensor >= 0 else {}),
                "life": [v.first, v.last],
                **({"halves": True} if v.halves else {}),
            }
            for v in plan.values
        ],
        "steps": [
            {
                "kernel": s.kernel,
                "write": [s.write.value, s.write.offset],
                "reads": [[a.value, a.offset] for a in s.reads],
                "after": list(s.after),
                "node": s.node,
                "op": s.op,
            }
            for s in plan.steps
        ],
        "inputs": list(plan.inputs),
        "outputs": list(plan.outputs),
    }


def plan_from_data(data: dict[str, Data]) -> Plan:
    return Plan(
        dims=dict(data["dims"]),
        values=tuple(
            Value(
                v["kind"], DTYPES[v["dtype"]], tuple(v["shape"]), v.get("name", ""),
                v.get("tensor", -1), first=v["life"][0], last=v["life"][1],
                halves=v.get("halves", False),
            )
            for v in data["values"]
        ),
        steps=tuple(
            Step(
                s["kernel"],
                Access(*s["write"]),
                tuple(Access(*a) for a in s["reads"]),
                tuple(s["after"]),
                s["node"],
                s.get("op", ""),
            )
            for s in data["steps"]
        ),
        inputs=tuple(data["inputs"]),
        outputs=tuple(data["outputs"]),
    )  # fmt: skip
