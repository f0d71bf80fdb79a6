"""Reports of the benchmark beside the peers: tables, charts and targets of small records."""

from __future__ import annotations

from typing import Any

from benchmarks.report import engines, gpu_engines
from benchmarks.report.targets import OF_BROWSERS, OF_SERVERS
from benchmarks.report.targets import lines as target_lines


def row(case: str, group: str, engine: str, milliseconds: float, **more: Any) -> dict[str, Any]:
    times = [milliseconds * f for f in (0.9, 1.0, 1.1)]
    return {
        "case": case, "group": group, "run": "r1", "browser": "chromium", "engine": engine,
        "threads": 1, "status": "ok", "why": "", "median_ms": milliseconds,
        "fastest_ms": times[0], "p95_ms": times[2], "rounds": times, "n": 3, "flops": 10**9,
        "bytes": 10**7, "gflops": 1e3 / milliseconds, "gflops_fastest": 1.1e3 / milliseconds,
        "peak_gflops": 50.0, "stream_gbps": 10.0, **more,
    }  # fmt: skip


FIXTURE: dict[str, Any] = {
    "rows": [
        row("k0", "kernel", "tilewright", 25.0, inside_ms=22.0),
        row("k0", "kernel", "ort", 50.0),
        row("k0", "kernel", "litert", 40.0),
        row("k1", "kernel", "tilewright", 25.0, inside_ms=22.0),
        row("k1", "kernel", "ort", 200.0, run="r0"),
        row("m", "model", "tilewright", 100.0, wasm_bytes=5e6, load_cold_ms=300.0),
        row("m", "model", "ort", 200.0, wasm_bytes=2e7, load_cold_ms=900.0),
        row("m", "model", "jax", 1.0) | {"status": "failed", "why": "no such operator in m"},
    ]
}


def test_report_of_a_small_record() -> None:
    summary = engines.summary(FIXTURE)
    kernels, models = summary.splitlines()[2:]
    # k1 of onnxruntime-web is from another run, so no ratio is taken
    assert "| 2.00× (1) | 1.60× (1) |" in kernels
    assert kernels.endswith("| 1.60× (1) | 1.60× |")
    assert models.endswith("| 2.00× (1) | 2.00× |")
    details = engines.details(FIXTURE)
    assert "2.00× (2.00–2.00)" in details
    assert "no such operator in …" in details
    assert "91 %" in details  # 22 ms inside: 45.5 of 50 GFLOP/s


ON_GPU: dict[str, Any] = {
    "rows": [
        row("gemm", "gemm", "tilewright", 1.0),
        row("gemm", "gemm", "ort", 8.0),
        row("gemm", "gemm", "ort-captured", 4.0),
        row("gemm", "gemm", "tfjs", 1.0) | {"status": "failed", "why": "gemm has 16 bits"},
        row("net", "model", "tilewright", 2.0, stream_median_ms=1.0),
        row("net", "model", "ort", 6.0, stream_median_ms=5.0),
        row("net", "model", "ort-captured", 7.0, stream_median_ms=4.0),
        row("other", "model", "tilewright", 2.0),
        row("other", "model", "ort", 24.0),
        row("other", "model", "jax", 4.0, run="r0"),
    ]
}


def test_report_of_engines_on_a_gpu() -> None:
    """onnxruntime-web counts with its faster form; a ratio needs one run."""
    products, models, streamed, missing = gpu_engines.peers(ON_GPU).split("\n\n")
    assert products.splitlines()[2] == "| gemm | 1.00 | 0.25 | 4.00× |"
    net, other, means = models.splitlines()[2:]
    assert net.endswith("| 2.00 | 6.00 | – | 3.00× |")
    assert other.endswith("| 2.00 | 24.0 | 4.00 | 12.00× |")
    assert "6.00× (2)" in means
    assert "| 4.00× |" in streamed.splitlines()[2]
    assert "… has 16 bits" in missing
    found = dict(gpu_engines.charts(ON_GPU))
    assert list(found) == ["peers.webgpu.kernel.svg", "peers.webgpu.model.svg"]


def targets(**rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The cells of each line by its name.  rows: by the last part of a file's name; those of
    `session` name their file"""
    files = {name.rpartition(".")[2]: name for name in (*OF_BROWSERS, *OF_SERVERS)}
    files |= {"peers": "peers.browsers"}
    for row in rows.pop("tuning", []):
        rows.setdefault(row["file"], []).append(row)
    records = {files[name]: {"rows": found} for name, found in rows.items()}
    head, lines = target_lines(records)
    return {name: found for name, *found in (head, *lines)}


def test_targets_of_a_small_record() -> None:
    kernels = [{"kernel": f"K{i}", "host": "chromium", "share_of_peak_quiet": s}
               for i, s in enumerate((0.95, 0.93, 0.85, 0.75))]  # fmt: skip
    steps = [{"subject": name, "host": "chromium", "threads": 2, "speedup_median": faster}
             for name, faster in (("K0", 1.95), ("K1", 1.5))]  # fmt: skip
    found = targets(kernels=kernels, threads=steps, peers=FIXTURE["rows"])
    assert found["what"] == ["must be", "chromium", "chromium, 2 threads"]
    assert found["K0, K1: share of the peak, the lower one"] == ["≥ 0.92", "0.93 (2)", "–"]
    assert found["K2, K3: share of the peak, the lower one"] == ["≥ 0.8", "**0.75** (2)", "–"]
    assert found["K0, K1: speed-up by threads, the lower one"] == ["≥ 1.9", "–", "**1.50** (2)"]
    assert found["models: speed-up over onnxruntime-web, smallest"] == ["≥ 1.5", "2.00", "–"]
    assert found["models: memory over onnxruntime-web's, mean"] == ["≤ 0.5", "0.25", "–"]


def test_targets_have_every_browser_and_no_figure_of_half_the_subjects() -> None:
    kernels = [{"kernel": k, "host": "firefox", "share_of_peak_quiet": 0.95}
               for k in ("K0", "K2", "K3")]  # fmt: skip
    steps = [{"subject": "K0", "host": "chromium", "threads": 2, "speedup_median": 2.0}]
    found = targets(kernels=kernels, threads=steps, peers=FIXTURE["rows"])
    assert found["what"] == ["must be", "chromium", "chromium, 2 threads", "firefox"]
    assert found["K0, K1: share of the peak, the lower one"][-1] == "–"
    assert found["K2, K3: share of the peak, the lower one"][-1] == "0.95 (2)"
    assert found["K0, K1: speed-up by threads, the lower one"][2] == "–"
    assert found["K0 to K3: speed-up over LiteRT.js, smallest"][1] == "–"


def test_targets_of_weights_of_few_bits_are_those_of_f32_in_one_run() -> None:
    case = "mk,kn->mn 1x4096 4096x4096"
    made = [{"host": "chromium", "case": case + tail, "gflops_median": speed}
            for tail, speed in ((" 4 bits", 20.0), ("", 10.0))]  # fmt: skip
    found = targets(gemm=made)
    assert found["1x4096x4096: speed with 4-bit weights over f32"] == ["≥ 1", "2.00"]
    assert found["128x4096x4096: speed with 4-bit weights over f32"] == ["≥ 0.7", "–"]


def test_targets_count_what_failed_for_us_alone() -> None:
    failed = {"status": "failed", "why": "wrong"}
    ours = row("a", "model", "tilewright", 10.0, wasm_bytes=1e6, load_warm_ms=1.0)
    theirs = row("a", "model", "ort", 30.0, wasm_bytes=4e6, load_warm_ms=4.0)
    rows = [ours, theirs, ours | {"case": "b"} | failed, theirs | {"case": "b"}]
    rows += [ours | {"case": "c"}, theirs | {"case": "c"} | failed]  # nothing to compare with
    found = targets(peers=rows)
    assert found["models: speed-up over onnxruntime-web, mean"][1] == "**0.00** (2)"
    assert found["models: speed-up over the fastest other engine, mean"][1] == "**0.00** (2)"
    assert found["models: memory over onnxruntime-web's, mean"][1] == "**inf** (2)"
    assert found["models: warm load over onnxruntime-web's, largest"][1] == "**inf** (2)"
    unknown = [*rows[:3], rows[3] | {"run": "r2"}]
    for name, cells in targets(peers=unknown).items():
        if "onnxruntime-web" in name or "other engine" in name:
            assert cells[1] == "–", name


def test_targets_compare_rows_of_one_run() -> None:
    names = (
        "int8 MobileNetV2: speed-up over our f32",
        "int8 MobileNetV2: speed-up over onnxruntime-web",
    )
    ours = row("mobilenet_v2_int8", "model", "tilewright", 10.0, wasm_bytes=1e6)
    theirs = row("mobilenet_v2_int8", "model", "ort", 30.0, wasm_bytes=4e6)
    floats = row("mobilenet_v2", "model", "tilewright", 20.0)
    assert [targets(peers=[ours, theirs, floats])[name][1] for name in names] == ["2.00", "3.00"]
    found = targets(peers=[ours | {"run": "r2"}, theirs, floats])
    assert [found[name][1] for name in names] == ["–", "–"]
    assert found["models: memory over onnxruntime-web's, mean"][1] == "–"


def test_targets_of_steps_are_medians() -> None:
    facts = {"host": "chromium", "threads": 2, "speedup_median": 1.0, "steps": 100}
    times = {"median_ms": 0.1, "fastest_ms": 0.05, "step_us": 0.5, "gflops": 80.0}
    names = ("matmul 48x64x64", "empty steps, shared")
    found = targets(threads=[{"subject": name, **facts, **times} for name in names])
    assert found["an empty step, µs"] == ["≤ 0.6", "**1.00**"]
    assert found["an empty step, µs, fastest run"] == ["", "0.50"]
    assert found["100 products of 48x64x64, GFLOP/s, two threads"] == ["≥ 65", "**40.00**"]
    assert found["100 products of 48x64x64, GFLOP/s, fastest run"] == ["", "80.00"]


def session(file: str, subject: str, start: str, **found: Any) -> dict[str, Any]:
    return {"file": file, "host": "chromium", "subject": subject, "start": start, **found}


def test_targets_of_tuning() -> None:
    """One thread of a browser; what needs no browser has a column of its own."""
    shares = {"K0": 0.99, "K1": 1.0, "K2": 0.9684, "K3": 0.98}
    rows = [session("rounds", k, "poor", share=s, rounds=3 if k != "K2" else None,
                    evaluation_ms=600.0) for k, s in shares.items()]  # fmt: skip
    rows += [r | {"start": "good", "evaluation_ms": 701.0} for r in rows]
    rows += [session("next_device", k, "poor", first_share=1.0) for k in shares]
    rows += [session("next_device", k, "good", first_share=0.5) for k in shares]
    rows += [session("whole_model", "minilm", "poor", last_swap_s=4.5, swaps=5)]
    rows += [session("latency", "a", "good", ratio=2.0, trials=0),
             session("latency", "b", "good", ratio=1.05, trials=9)]  # fmt: skip
    rows += [
        session("good_defaults", m, "good", runs=60, slower=s) for m, s in (("a", 0), ("b", 1))
    ]
    rows += [session("server_part", k, "", median_ms=12.5) | {"host": ""} for k in shares]
    scenarios = ("honest", "same", "swap", "gold", "early", "late", "spread")
    crowd = [{"scenario": s, "keys": 80, "within": 80 - n, "adopted_slower": 0, "adopted_wrong": 0}
             for n, s in enumerate(scenarios)]  # fmt: skip
    sockets = [{"lost": 0, "twice": 0}]
    found = targets(tuning=rows, crowd=crowd, sockets=sockets)
    assert found["what"] == ["must be", "chromium", "server"]
    least = "K0 to K3 from poor defaults: share of the optimum after 32 trials, lowest"
    assert found[least][1:] == ["**0.9684** (4)", "–"]
    assert (
        found["K0 to K3 from poor defaults: trials to 97 % of the optimum, most"][1]
        == "**inf** (4)"
    )
    evaluation = found["evaluating a candidate, ms: median per kernel, largest"]
    assert evaluation[1] == "**701.00** (8)"
    server = found["server's part of a round, ms: median per kernel, largest"]
    assert server[1:] == ["–", "12.50 (4)"]
    assert found["MiniLM from poor defaults: last swap at, s"][1] == "4.50"
    assert found["p95 with a tuner over p95 without, largest"][1] == "1.05"
    assert found["sessions with good defaults"][1] == "120 (2)"
    assert found["of these, slower by 2 % or more"][1] == "**1** (2)"
    known = "winners linked: first inference, share of the optimum's speed, lowest"
    assert found[known][1] == "1.00 (4)"
    right = "crowd, a fifth of voices lies: share of keys with the right default, lowest"
    assert found[right][1:] == ["–", "**0.94** (5)"]
    assert found["the same, a third of voices lies"][2] == "0.93"
    assert found["crowd: slower or wrong kernels that honest clients adopted"][2] == "0 (7)"
    assert found["sockets: reports lost or counted twice"][2] == "0"


def test_targets_of_tuning_do_not_take_nothing_for_success() -> None:
    rows = [session("whole_model", "minilm", "poor", last_swap_s=0.0, swaps=0),
            session("next_device", "K0", "poor", first_share=1.0),
            session("latency", "a", "good", ratio=1.0, trials=0)]  # fmt: skip
    found = targets(tuning=rows)
    assert found["what"] == ["must be", "chromium"]
    assert found["MiniLM from poor defaults: last swap at, s"][1] == "**inf**"
    dashes = ("winners linked: first inference, share of the optimum's speed, lowest",
              "p95 with a tuner over p95 without, largest",
              "of these, slower by 2 % or more")  # fmt: skip
    assert all(found[name][1] == "–" for name in dashes)
