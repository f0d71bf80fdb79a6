"""Page: Tilewright beside other engines on WebGPU.

Input: the record of peers.webgpu.  Output: the page, SVG bars.  Ratios above 1 mean that Tilewright
is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import geometric_mean

from benchmarks.peers.engines import CUBLAS, ON_GPU, ON_GPUS
from benchmarks.records import Record, Records, Stored
from benchmarks.report.charts import grouped
from benchmarks.report.engines import missing
from benchmarks.report.page import Answer, Page, Section, over, place
from benchmarks.report.tables import DASH, figure, mean, paragraphs, table, told

OURS, CAPTURED = "tilewright", "ort-captured"
#: Engines as tables know them: onnxruntime-web is its faster form.
PEERS = {"ort": ("ort", CAPTURED), "jax": ("jax",), "tfjs": ("tfjs",)}
TITLES = {name: ON_GPU[name].title for name in (OURS, *PEERS)}
#: What is timed as many runs in a row alone.
PRODUCTS = ("kernel", "gemm", "bits4", "attention")
MODELS = ("model",)


class Cases:
    """The rows by case and engine; `key`: which time counts."""

    def __init__(self, record: Record, groups: Sequence[str], key: str = "median_ms") -> None:
        self.key = key
        self.found = {(r["case"], r["engine"]): r for r in record["rows"]}
        self.names = list(dict.fromkeys(r["case"] for r in record["rows"] if r["group"] in groups))

    def row(self, case: str, engine: str) -> Stored | None:
        """The faster form's; None if none ran."""
        rows = [self.found.get((case, form)) for form in PEERS.get(engine, (engine,))]
        ran = [r for r in rows if r and r["status"] == "ok" and self.key in r]
        return min(ran, key=lambda r: float(r[self.key])) if ran else None

    def ratio(self, case: str, engine: str) -> float | None:
        """Their time over ours, if both ran in the same run."""
        ours, theirs = self.row(case, OURS), self.row(case, engine)
        if ours is None or theirs is None or ours["run"] != theirs["run"]:
            return None
        return float(theirs[self.key]) / float(ours[self.key])

    def ratios(self, engine: str) -> list[float | None]:
        return [self.ratio(case, engine) for case in self.names]

    def took(self, case: str, engine: str) -> str:
        row = self.row(case, engine)
        return DASH if row is None else figure(float(row[self.key]))

    def speed(self, case: str, engine: str) -> float | None:
        """TFLOP/s, from call to outputs."""
        row = self.row(case, engine)
        return row["gflops"] / 1e3 if row and "gflops" in row else None


def peers(record: Record) -> str:
    """Products and models; then why engines are missing."""
    cases, titles = Cases(record, PRODUCTS), TITLES | {CUBLAS.name: CUBLAS.title}
    parts = [_beside("product: TFLOP/s", titles, cases, lambda *at: told(cases.speed(*at), ".2f"))]
    for key, words in (("median_ms", "from call to outputs"), ("stream_median_ms", "in a row")):
        models = Cases(record, MODELS, key)
        parts.append(_beside(f"model: ms {words}", TITLES, models, models.took))
    return paragraphs(*parts, missing(record, {n: e.title for n, e in ON_GPUS.items()}))


def _beside(
    head: str, titles: Mapping[str, str], cases: Cases, cell: Callable[[str, str], str]
) -> str:
    """A line per case: every engine, and the ratios; then their geometric means."""
    others = [engine for engine in titles if engine != OURS]
    lines = [
        [
            case, *(cell(case, e) for e in titles),
            *(told(cases.ratio(case, e), ".2f×") for e in others),
        ]
        for case in cases.names
    ]  # fmt: skip
    means = [mean(cases.ratios(engine)) for engine in others]
    lines.append(["geometric mean (cases)", *[""] * len(titles), *means])
    return table([head, *titles.values(), *(f"over {titles[e]}" for e in others)], lines)


def charts(record: Record) -> Iterator[tuple[str, str]]:
    """Bars of products and of models, TFLOP/s."""
    for name, groups in (("kernel", PRODUCTS), ("model", MODELS)):
        cases = Cases(record, groups)
        rows = [(case, [cases.speed(case, e) for e in TITLES]) for case in cases.names]
        if any(v is not None for _, values in rows for v in values):
            title = f"WebGPU, {name}s, TFLOP/s, median (longer is faster)"
            yield f"peers.webgpu.{name}.svg", grouped(title, list(TITLES.values()), rows)


def verdict(records: Records) -> str:
    record = records["peers.webgpu"]
    cases = Cases(record, MODELS)
    found = {TITLES[e]: [r for r in cases.ratios(e) if r is not None] for e in PEERS}
    means = ", ".join(
        f"{geometric_mean(ratios):.2f} times as fast as in {title} ({len(ratios)} models)"
        for title, ratios in found.items()
    )
    return f"On an {place(record)}, from the call to the outputs, models run {means}."


def answers(records: Records) -> list[Answer]:
    record = records["peers.webgpu"]
    models, products = Cases(record, MODELS), Cases(record, PRODUCTS)
    return [
        *(over(f"models over {TITLES[e]}", models.ratios(e), record) for e in PEERS),
        over(f"products and attention over {TITLES['ort']}", products.ratios("ort"), record),
        over("matrix products over cuBLAS", products.ratios(CUBLAS.name), record),
    ]


PAGE = Page("gpu-engines", "Other engines on WebGPU", verdict, answers, (
    Section("peers.webgpu", "Products and models",
            "Each engine in a Node process with Dawn, by turns. Products are many runs in a row "
            "whose outputs stay on the GPU; onnxruntime-web is the faster of plain and captured. "
            "jax-js gave 33 TFLOP/s at 4096³ in f32 in an earlier measurement; why it is slower "
            "here is not known.", peers, charts),
))  # fmt: skip
