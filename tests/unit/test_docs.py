"""The documentation is true: its commands run, its generated parts are current, its links lead on.

Input: README.md, docs/*.md and others.  Commands of `tilewright` and of the laboratory run, on a
tiny model; scripts must exist.
"""

from __future__ import annotations

import io
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
import uvicorn
from cli_call import Called, LabCalled
from helpers import encoder_decoders, whispers
from helpers.corun_until import all_answered, command_until
from helpers.exported_models import Export, exported
from helpers.folder_texts import write_text
from helpers.gguf_files import Tiny, write_tiny
from helpers.llama import llama
from helpers.model_folders import write_folder
from helpers.vocabularies import merges
from onnx import helper

from tilewright.base.errors import TilewrightError
from tilewright.elastic.policy import Critical
from tilewright.hosts.browser_discovery import find

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for page in (
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "benchmarks").rglob("*.md"),
        *(ROOT / "lab").rglob("*.md"),
        ROOT / "tilewright" / "web" / "README.md",
    )
    if "node_modules" not in page.parts
)
MODEL = ROOT / "tests" / "models" / "bert-tiny-eager-dynamo.onnx"
#: Bundles that commands use, by what they are built from.
BUNDLES = {
    "bundle": ("model.onnx", "--buckets", "n=8"),
    "smollm2": ("SmolLM2-135M-Instruct.Q4_1.gguf",),
    "llama-3.2": ("Llama-3.2-1B-genai",),
}
#: Exported models by their files.
EXPORTS = {
    "Qwen3-0.6B-ONNX/onnx/model_q4.onnx": Export("optimum", "q4", words=300, layers=1),
    "Llama-3.2-1B-genai/model.onnx": Export(words=300, layers=1, most=1024),
}
#: Commands that run until somebody ends them.
LONG = ("serve",)
#: What makes a co-running command answer without a GPU, on a busy machine too.
ANYWHERE = ("--device", "cpu", "--max-slowdown", "1e7", "--rate", "0", "--seconds", "0.2")
#: Commands that start a browser.
BROWSER = ("tune",)
Capture = pytest.CaptureFixture[str]


def shell_lines(page: Path) -> list[str]:
    """Command lines of ```sh blocks, comments cut off."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


COMMANDS = [(page.relative_to(ROOT), line) for page in PAGES for line in shell_lines(page)]
#: Programs whose commands run, and what calls them.
PROGRAMS = {"tilewright ": Called, "python -m lab ": LabCalled}
OURS = [(p, c) for p, c in COMMANDS if c.removeprefix("uv run ").startswith(tuple(PROGRAMS))]


def test_there_are_commands() -> None:
    assert len(OURS) >= 4


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models under the names that the documents use."""
    folder = tmp_path_factory.mktemp("docs")
    shutil.copy(MODEL, folder / "model.onnx")
    onnx.save(llama(), folder / "llama.onnx")
    onnx.save(detector(), folder / "detector.onnx")
    for name in ("critical", "normal"):
        onnx.save(layer(), folder / f"{name}.onnx")
    spoken = Tiny(words=300, room=2048, text=merges().write, layers=1)
    gguf = write_tiny(folder / "SmolLM2-135M-Instruct.Q4_1.gguf", spoken)
    write_text(write_folder(folder / "SmolLM2-135M-Instruct", gguf, spoken), merges())
    for name, export in EXPORTS.items():
        file = folder / name
        file.parent.mkdir(parents=True)
        onnx.save(exported(export), file)
        write_text(folder / name.split("/")[0], merges())
    pair = encoder_decoders.Tiny(words=300, layers=1, most=512)
    (folder / "t5-small").mkdir()
    onnx.save(encoder_decoders.encoder(pair), folder / "t5-small" / "encoder_model.onnx")
    onnx.save(encoder_decoders.decoder(pair), folder / "t5-small" / "decoder_model.onnx")
    (folder / "t5-small" / "config.json").write_text('{"decoder_start_token_id": 0}')
    write_text(folder / "t5-small", merges())
    whispers.write_speech_text(whispers.write_converted(folder / "tiny.en", whispers.Tiny()))
    whispers.write_wav(folder / "recording.wav", whispers.sound(0.3))
    shutil.copy(ROOT / "examples" / "camera" / "camera.json", folder)
    shutil.copy(ROOT / "tests" / "elastic_sources" / "samples.cu", folder / "kernel.cu")
    return folder


def detector() -> onnx.ModelProto:
    """A picture of any size in, a map out."""
    x, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, channels, "h", "w"])
        for name, channels in (("x", 3), ("y", 1))
    )
    node = helper.make_node("ReduceMean", ["x"], ["y"], axes=[1])
    graph = helper.make_graph([node], "detector", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def layer() -> onnx.ModelProto:
    """A short model of one size."""
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 16]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], "layer", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("page", "command"), OURS, ids=[f"{p}: {c[:50]}" for p, c in OURS])
def test_command_runs(
    page: Path, command: str, place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    program = next(name for name in PROGRAMS if command.removeprefix("uv run ").startswith(name))
    words = shlex.split(command.removeprefix("uv run ").removeprefix(program))
    if words[0] in BROWSER and find("chromium") is None:
        pytest.skip("needs Chromium")
    # the tiny model knows no long texts
    words = [re.sub(r"^n=[\d,]+$", "n=8", word) for word in words]
    for name, source in BUNDLES.items():
        if words[0] != "build" and name in words and not (place / name).exists():
            run(capsys, ["build", *source, "-o", name])
    if words[0] == "check" and "--buckets" not in words:
        words += ["--buckets", "n=8"]
    if "--budget" in words:
        words[words.index("--budget") + 1] = "0.5"  # that it works, not what it finds
    if words[0] == "corun":
        monkeypatch.setattr(Critical, "effective_lease_us", property(lambda _: 6e7))
        command_until(monkeypatch, all_answered)
        words += ANYWHERE
    if PROGRAMS[program] is LabCalled:
        assert LabCalled(capsys, *words).code == 0
    elif words[0] in LONG:
        monkeypatch.setattr(uvicorn.Server, "startup", started)
        assert "http://" in run(capsys, [*words, "--port", "0"])
    else:
        run(capsys, words)


def run(capsys: Capture, words: list[str]) -> str:
    called = Called(capsys, *words)
    assert called.code == 0, called.err
    return called.out


startup = uvicorn.Server.startup


async def started(server: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
    """Ends the server once it says where it is; that a signal does so is tested elsewhere."""
    await startup(server, sockets)
    server.should_exit = True


PROGRAM_PAGES = ("README.md", "docs/language-models.md", "docs/speech.md")


@pytest.mark.parametrize("page", PROGRAM_PAGES)
def test_programs_run(
    page: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """The ```python blocks of a page, one after the other."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    assert capsys.readouterr().out


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=[f"{p}: {c[:50]}" for p, c in COMMANDS])
def test_named_files_exist(page: Path, command: str) -> None:
    for word in shlex.split(command):
        if re.match(r"(scripts|benchmarks|tests|examples)/", word):
            assert (ROOT / word).exists(), f"{page}: {word}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_headings(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text()):
        if not target.startswith("http"):
            led = page.parent / target if target else page
            assert led.suffix != ".md" or anchor in headings(led), f"{target}#{anchor}"


def test_errors_are_listed_with_their_exit_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| ([^|]*) \|", (ROOT / "docs" / "errors.md").read_text(), re.M)
    listed = {(code, int(exit)) for exit, codes in rows for code in re.findall(r"`(.*?)`", codes)}
    kinds = [TilewrightError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    ours = [k for k in kinds[1:] if k.__module__ == TilewrightError.__module__]
    assert listed == {(kind.code, kind.exit_code) for kind in ours}


def test_operator_page_is_current() -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import operators
    finally:
        sys.path.pop(0)
    assert operators.page() == operators.PAGE.read_text(), "run scripts/operators.py --write"


def test_report_is_current() -> None:
    report = [sys.executable, "-m", "benchmarks.report", "--check"]
    result = subprocess.run(report, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr


#: A figure with its unit, or two of them: "2.14 to 6.99 times as fast".
UNITS = r"×|%|µs|ms\b|kB\b|times as|tokens a second|GB/s|[GT]FLOP/s"
FIGURE = re.compile(rf"(\d[\d.,]*)(?: (?:to|and|or) (\d[\d.,]*))? ?(?:{UNITS})")
RESULT = re.compile(r"\]\(([^)#]*benchmarks/results/[\w-]+\.md)")


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))])
def test_figures_that_are_quoted_are_those_of_the_page_that_is_linked(page: Path) -> None:
    """Of each paragraph or item with a link to a page of results.  Decisions keep what was measured
    when they were made."""
    for part in re.split(r"\n\n|\n(?=\* )", page.read_text()):
        pages = [(page.parent / link).read_text() for link in RESULT.findall(part)]
        if pages:
            for figure in filter(None, (n for pair in FIGURE.findall(part) for n in pair)):
                there = re.compile(rf"(?<![\d.,]){re.escape(figure)}(?![\d]|[.,]\d)")
                assert any(there.search(text) for text in pages), f"{figure} in: {part}"


def test_pages_of_results_are_short_and_lead_with_the_answer() -> None:
    results = ROOT / "benchmarks" / "results"
    index = (results / "README.md").read_text()
    for page in sorted(results.glob("*.md")):
        lines = page.read_text().splitlines()
        assert len(lines) < 150, page.name
        if page.name != "README.md":
            assert f"]({page.name})**: {lines[2]}" in index, page.name
