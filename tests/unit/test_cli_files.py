"""Files that commands write: nobody else's, whole or not at all.

Input: commands with an output file, and `Output` itself.  Output: what the file holds then.
Folders: test_written.py; `tune`: test_cli_tune.py; `primitives`: test_findings.py.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from cli_call import Called
from helpers.waiting import PATIENCE
from test_cli_models import WEIGHT, save_inputs, save_model

from tilewright.base.errors import UsageError
from tilewright.cli.output_files import Output, is_json_of_ours
from tilewright.store import KernelStore

Capture = pytest.CaptureFixture[str]


def written(path: Path, force: bool = False) -> dict[str, object]:
    Output(path, is_json_of_ours, force).write_json({"n": 1})
    return {"n": 1}


@pytest.mark.parametrize(
    "text", ["mine", "[]", "{}", '{"tool": 1}', '{"tool": "tilewrights 1"}', "\xff"]
)
def test_a_file_of_somebody_else_is_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(text, "latin-1")
    with pytest.raises(UsageError, match=r"file\.json exists, and this command") as caught:
        written(path)
    assert "--force" in caught.value.hint
    assert path.read_text("latin-1") == text
    written(path, force=True)
    assert is_json_of_ours(path)


def test_an_own_file_and_an_empty_one_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.touch()
    for _ in range(2):
        written(path)
    assert is_json_of_ours(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_came_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    output = Output(path, is_json_of_ours)
    output.check()
    path.write_text("mine")
    with pytest.raises(UsageError):
        output.write_json({})
    assert path.read_text() == "mine"


def test_an_error_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    written(path)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        Output(path, is_json_of_ours).write_json({"no": object()})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one(tmp_path: Path) -> None:
    link, path = tmp_path / "link.json", tmp_path / "file.json"
    link.symlink_to(path.name)
    for _ in range(2):
        written(link)
    assert link.is_symlink()
    assert is_json_of_ours(path)


def test_a_pipe_is_written_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()))
    reader.start()
    written(pipe)
    reader.join(PATIENCE)
    assert '"n": 1' in heard[0]
    assert pipe.is_fifo()


def test_outputs_of_a_run(capsys: Capture, tmp_path: Path) -> None:
    """A file of arrays is the user's, unless a run wrote it."""
    model = save_model(tmp_path / "m.onnx")
    x = np.ones((4, 8), np.float32)
    inputs, outputs = save_inputs(tmp_path / "in.npz", x=x), tmp_path / "out.npz"
    before = inputs.read_bytes()
    asked = ("run", model, "--buckets", "n=4", "--inputs", inputs, "--json", "--outputs")
    called = Called(capsys, *asked, inputs)
    assert (called.code, called.json["error"]["code"]) == (2, "usage")
    assert inputs.read_bytes() == before
    for _ in range(2):
        assert Called(capsys, *asked, outputs).code == 0
    np.testing.assert_allclose(np.load(outputs)["y"], np.maximum(x @ WEIGHT, 0), rtol=1e-5)
    assert Called(capsys, *asked, inputs, "--force").code == 0
    assert list(np.load(inputs)) == ["y"]


def test_an_export_of_the_database(capsys: Capture, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    KernelStore.open(url).close()
    mine, beside, file = (tmp_path / name for name in ("mine.json", "e.json.part", "e.json"))
    for path in (mine, beside):
        path.write_text('{"schema_version":"1.1.0"}')
    called = Called(capsys, "db", "export", mine, "--store", url, "--json")
    assert (called.code, called.json["error"]["code"]) == (2, "usage")
    for _ in range(2):
        assert Called(capsys, "db", "export", file, "--store", url).code == 0
    assert {path.read_text() for path in (mine, beside)} == {'{"schema_version":"1.1.0"}'}
    assert Called(capsys, "db", "export", mine, "--store", url, "--force").code == 0
    assert mine.read_bytes() == file.read_bytes()
