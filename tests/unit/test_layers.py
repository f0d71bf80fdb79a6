"""The import tables are law, and kernel generation needs the standard library only."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from helpers.delivered import need_bundler

from tilewright.targets import TARGETS

PACKAGE = Path(__file__).parents[2] / "tilewright"

ALLOWED: dict[str, set[str]] = {
    "base": set(),
    "kernel": {"base"},
    "plan": {"base", "kernel"},
    "graph": {"base", "kernel"},
    "fusion": {"base", "graph", "kernel", "plan"},
    "frontend": {"base", "graph"},
    "targets": {"base", "kernel", "plan"},
    "bundle": {"base"},
    "store": {"base"},
    "compiler": {
        "base",
        "frontend",
        "fusion",
        "graph",
        "kernel",
        "plan",
        "targets",
        "bundle",
        "assembly",
    },
    "assembly": {"base", "fusion", "graph", "kernel", "plan", "targets", "bundle"},
    "tuning": {"base", "kernel", "plan", "targets", "bundle"},
    "hosts": {"base", "bundle"},
    "language": {"base", "frontend", "graph", "bundle", "hosts"},
    "hosts/plan_interpreter": {"base", "bundle", "hosts", "kernel", "plan"},
    "hosts/browser": {"base", "bundle", "hosts", "server"},
    "server": {"base", "bundle", "store", "tuning"},
    "elastic": {"base", "kernel", "plan", "targets", "bundle", "hosts"},
    "api": {
        *("base", "frontend", "fusion", "graph", "kernel", "plan", "targets", "bundle", "compiler"),
        *("assembly", "tuning", "hosts", "language", "elastic", "store"),
    },
}
#: Files of hosts/ that may import more, by how they begin: those that walk plans for checking.
HOSTS = {
    "reference": "plan_interpreter",
    "plan_interpreter": "plan_interpreter",
    "native": "plan_interpreter",
    "browser": "browser",
}
ANYTHING = {"cli"}

#: The same of web/: the engine works alone, and so does the tuner with it.
ALLOWED_WEB: dict[str, set[str]] = {
    "engine": set(),
    "tune": {"engine"},
    "language": {"engine", "vendor"},
    "page": {"engine", "tune", "language", "vendor"},
    "host": {"engine", "tune"},
    "static": {"engine", "tune"},
}
#: `from '…'`, `import '…'`, `import('…')`, `new URL('…'`, and the types that comments name.
NAMED = re.compile(r"""(?:\bfrom|\bimport|\bimport\(|\bnew URL\(|path=)\s*['"](\.[^'"]+)['"]""")

#: The first three of these, at the beginning of a statement or as a call.
IMPORTED = re.compile(
    r"""(?:^(?:import|export)\b[^'"\n]*\bfrom|^import|^(?!\s*(?:/\*)?\*).*?\bimport\()\s*['"](\.[^'"]+)['"]""",
    re.M,
)


def folder_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    if parts[0] == "hosts" and len(parts) > 1:
        for start, special in HOSTS.items():
            if parts[1].startswith(start):
                return f"hosts/{special}"
    return parts[0]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


#: Nodes that a docstring may begin.
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
#: Nodes that the tests ask for.
ASKED = DOCUMENTED | ast.Import | ast.ImportFrom | ast.Constant


@cache
def nodes(path: Path) -> list[ast.AST]:
    return [node for node in ast.walk(parsed(path)) if isinstance(node, ASKED)]


def imported_names(path: Path) -> Iterator[str]:
    """Dotted names of modules and of what the file takes from them."""
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{a.name}" for a in node.names)
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names)


def imports(path: Path) -> set[str]:
    """Top-level folders of the package that the file imports."""
    found = set()
    for name in imported_names(path):
        parts = name.split(".")
        if parts[0] == "tilewright" and parts[1:] and parts[1] not in ("__version__", "TOOL"):
            found.add(parts[1])
    return found


def test_imports_go_one_way() -> None:
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        folder = folder_of(path)
        if folder in ANYTHING or folder == "__init__":
            continue
        assert folder in ALLOWED, f"{path} is in no row of the import table"
        allowed = ALLOWED[folder] | {folder.split("/")[0]}
        wrong += [f"{path}: {name}" for name in imports(path) if name not in allowed]
    assert not wrong


def test_nothing_of_the_product_needs_the_laboratory() -> None:
    """`lab/` may import anything, and wheels do not have it."""
    files = sorted(PACKAGE.rglob("*.py"))
    assert not [str(p) for p in files if {"lab"} & {n.split(".")[0] for n in imported_names(p)}]


def modules_of(folder: Path) -> dict[str, Path]:
    """Every module below a folder of the package, by its dotted name."""
    names = {p: p.relative_to(PACKAGE.parent).with_suffix("").parts for p in folder.rglob("*.py")}
    return {".".join(parts).removesuffix(".__init__"): p for p, parts in names.items()}


def imported(path: Path, known: Mapping[str, Path]) -> set[str]:
    """The known modules that a file imports, wherever in it."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            wholes = (f"{node.module}.{a.name}" for a in node.names)
            found |= {whole if whole in known else node.module for whole in wholes}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
    return {name for name in found if name in known and known[name] != path}


def levels(graph: Mapping[str, set[str]]) -> int:
    """How deep imports go.  Fails at a circle."""
    try:
        order = tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"imports in a circle: {' -> '.join(error.args[1])}")
    depth: dict[str, int] = {}
    for name in order:
        depth[name] = 1 + max((depth[n] for n in graph.get(name, ())), default=0)
    return max(depth.values())


def test_no_modules_import_each_other() -> None:
    known = modules_of(PACKAGE)
    graph = {name: imported(path, known) for name, path in known.items()}
    levels(graph)


def test_no_modules_of_javascript_import_each_other() -> None:
    """Also not on demand.  A worker's module is not imported but started."""
    known = [p for p in (PACKAGE / "web").rglob("*.js") if "vendor" not in p.parts]
    graph = {
        str(path): {
            str((path.parent / name).resolve()) for name in IMPORTED.findall(path.read_text())
        }
        for path in known
    }
    assert any(graph.values())
    levels(graph)


def test_rooms_of_gpu_need_little_of_each_other() -> None:
    """A room is a folder of targets/gpu, or a file beside these."""
    folder = "tilewright.targets.gpu."
    known = {n: p for n, p in modules_of(PACKAGE / "targets/gpu").items() if n.startswith(folder)}
    room = {name: name.removeprefix(folder).split(".")[0] for name in known}
    needed = {
        (room[name], other)
        for name, path in known.items()
        for other in imported(path, known)
        if room[other] != room[name]
    }
    assert len(needed) <= 30
    graph: dict[str, set[str]] = {name: set() for name in room.values()}
    for name, other in needed:
        graph[name].add(room[other])
    assert levels(graph) <= 6


def test_the_graph_knows_kernels_by_indices_and_layouts_alone() -> None:
    named = set()
    for path in (PACKAGE / "graph").rglob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "tilewright.kernel"
            ):
                named.add(node.module)
    assert named == {"tilewright.kernel.index", "tilewright.kernel.layout"}


#: What others may import of targets/: the registry, what a target is, and what all of them share.
NEUTRAL = {
    "": "the registry by name",
    "protocol": "what a target is",
    "device_class": "what a class of devices is",
    "device_classes": "the classes of all targets",
    "schedule": "what all schedules are",
    "lite_space": "the paper's space by formulas, for any kind of core",
    "ticket_protocol": "the text by which workers take turns, of our kernels and of foreign ones",
}

#: Where else the name of a target is written down, and why.
NAMING = {
    "hosts/wasmtime.py": {"wasm": "the host executes this section of a bundle"},
    "hosts/native.py": {"c": "the host executes this section of a bundle"},
    "hosts/cuda.py": {"cuda": "the host executes this section of a bundle"},
    "hosts/cuda_devices.py": {"cuda": "the host's name in errors"},
    "hosts/cuda_driver.py": {"cuda": "the host's name in errors"},
    "api/host_registry.py": {"cuda": "a host has this name, too"},
    "cli/tune.py": {"cuda": "a host has this name, too"},
    "cli/tune_local.py": {"cuda": "a host has this name, too"},
    "cli/corun.py": {"cuda": "what models are compiled for, and the device's name for people"},
    "hosts/wgpu.py": {"wgsl": "the host executes this section of a bundle"},
    "hosts/browser_programs.py": {
        "wasm": "the engine's name of a device",
        "wgsl": "hosts on WebGPU execute this section of a bundle",
    },
}
#: What strings outside of targets/ may say of a target in longer words, and why.
WORDS = {
    "elastic/block_trace.py": "CUDA's names in text for its compiler",
    "hosts/cuda_on_cpu/__init__.py": "the names of headers and folders",
    "hosts/browser_dawn.py": "names of an npm package, of the engine's device, of Dawn's backend",
    "hosts/wgpu_features.py": "WebGPU's names of features, as section and engine have them",
    "elastic/transform/transform.py": "the names of CUDA's headers",
    "elastic/transform/ptx.py": "the names of CUDA's functions",
    "elastic/transform/unit_refusals.py": "the names of CUDA's libraries",
    "elastic/transform/unknown_code.py": "the names of CUDA's libraries and headers",
    "elastic/transform/eligibility.py": "the names of CUDA's functions in C++",
    "elastic/transform/copies.py": "the names of CUDA's libraries",
    "server/file_responses.py": "the media type of WebAssembly files",
    "server/headers.py": "the name of a browser's policy",
    "server/pyodide.py": "names of Pyodide's files",
}


#: Folders whose `__init__` says what each of its files does.
GUIDED = ("elastic", "elastic/broker", "elastic/policy", "elastic/transform")


def outside() -> list[Path]:
    """Every module of the package but those in targets/."""
    return [p for p in sorted(PACKAGE.rglob("*.py")) if PACKAGE / "targets" not in p.parents]


def from_targets(path: Path) -> Iterator[str]:
    """The modules of targets/ that a file imports; "" is the package itself."""
    folder = PACKAGE / "targets"
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{a.name}" for a in node.names]
        else:
            continue
        for name in names:
            if not f"{name}.".startswith("tilewright.targets."):
                continue
            parts = name.split(".")[2:]
            is_module = parts and any((folder / p).exists() for p in (parts[0], f"{parts[0]}.py"))
            yield parts[0] if is_module else ""


def test_nobody_outside_reaches_into_a_target() -> None:
    wrong = [
        f"{path}: {name}"
        for path in outside()
        for name in from_targets(path)
        if name not in NEUTRAL
    ]
    assert not wrong
    used = {name for path in outside() for name in from_targets(path)}
    assert used == NEUTRAL.keys(), "a row that nobody needs"


def strings(path: Path) -> Iterator[str]:
    """The literals of a file that are no documentation."""
    told = {
        id(node.body[0].value)
        for node in nodes(path)
        if isinstance(node, DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.value


def test_nobody_outside_names_a_target() -> None:
    """Names come from the registry; a host that executes one target's code says which."""
    named: dict[str, set[str]] = {}
    for path in outside():
        found = set(strings(path)) & TARGETS.keys()
        if found:
            named[path.relative_to(PACKAGE).as_posix()] = found
    assert named == {path: set(names) for path, names in NAMING.items()}


def test_strings_outside_have_no_words_of_a_target() -> None:
    """Classes, variants, features and stages of targets: who needs one asks the target."""
    words = re.compile(rf"\b({'|'.join(sorted(vocabulary()))})(?!time)")  # wasmtime is a host
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in outside()
        if path.relative_to(PACKAGE).as_posix() not in NAMING
        for text in strings(path)
        if words.search(text)
    }
    assert found == WORDS.keys()


def vocabulary() -> set[str]:
    """Names that targets gave, but for those that are words of other matters, too."""
    kinds = {c.kind for t in TARGETS.values() for c in t.classes}
    variants = {name for t in TARGETS.values() for name in t.variants}
    features = frozenset[str]().union(*(t.facts.features for t in TARGETS.values()))
    return (kinds | variants | features | TARGETS.keys()) - {"c", "arm", "core", "scalar"}


#: A module whose classes may have the names of others, and why.
DIALECTS = {"targets/wasm/ir.py": "a second IR: its nodes are called as WebAssembly calls them"}


def test_a_class_name_means_one_thing() -> None:
    """Public classes at the top of a module, in the whole package."""
    homes: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        home = path.relative_to(PACKAGE).as_posix()
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(home)
    shared = {name: places for name, places in homes.items() if len(places) > 1}
    assert not {n: p for n, p in shared.items() if len(p) > 2 or not DIALECTS.keys() & set(p)}
    assert {home for places in shared.values() for home in places} >= DIALECTS.keys()


#: Names that several files have, each with one meaning: the same part of several rooms, or the same
#: matter on the way from Python to the page.  Any other name is the name of one file.
SHARED_NAMES = {
    "a part that each target or room has": {
        *("device_classes", "emit", "features", "ir", "messages", "prelude", "schedule", "steps"),
        *("strategies", "sw", "target"),
    },
    "an operation or type, at each stage of its way to code": {
        *("elementwise", "integer_gemm", "top_k", "windows"),
    },
    "the same rules in Python and in the page": {
        *("abi", "candidate_order", "control_tokens", "device_class", "errors", "json_schema"),
        *("paired_times", "pyodide", "reports", "sampling", "state_blocks", "trial_inputs"),
        *("wasm", "weight_decoding", "webgpu"),
    },
    "a matter with its command, its library and its page": {
        *("corun", "database", "elastic", "language", "static", "tune"),
    },
}


@pytest.mark.parametrize("room", GUIDED)
def test_a_room_with_a_guide_names_all_its_files(room: str) -> None:
    folder = PACKAGE / room
    guide = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    missing = [p.name for p in sorted(folder.glob("*.py")) if f"`{p.name}`" not in guide]
    assert missing == ["__init__.py"]


def test_a_file_name_means_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in (".py", ".js", ".mjs") and "vendor" not in path.parts:
            homes.setdefault(path.stem, []).append(path.relative_to(PACKAGE).as_posix())
    shared = {name: places for name, places in homes.items() if len(places) > 1}
    known = set[str]().union(*SHARED_NAMES.values(), {"__init__"})
    assert {name: places for name, places in shared.items() if name not in known} == {}


@pytest.mark.parametrize("folder", ALLOWED_WEB)
def test_scripts_name_files_one_way(folder: str) -> None:
    web = PACKAGE / "web"
    scripts = [p for p in sorted((web / folder).rglob("*")) if p.suffix in (".js", ".ts")]
    assert scripts
    wrong = []
    for path in scripts:
        for name in NAMED.findall(path.read_text()):
            found = (path.parent / name).resolve().relative_to(web).parts[0]
            # what a build with --client has there
            if found not in {folder, "compiler"} | ALLOWED_WEB[folder]:
                wrong.append(f"{path}: {name}")
    assert not wrong


def test_every_script_is_in_the_table() -> None:
    folders = {p.relative_to(PACKAGE / "web").parts[0] for p in (PACKAGE / "web").rglob("*.js")}
    assert folders == ALLOWED_WEB.keys() | {"vendor"}


def test_web_engine_names_no_python() -> None:
    assert not list((PACKAGE / "web").rglob("*.py"))


def test_files_are_short() -> None:
    root = PACKAGE.parent
    folders = ("tilewright", "lab", "tests", "benchmarks", "scripts", "examples")
    kinds = {".py", ".js", ".mjs", ".ts", ".css", ".html", ""}
    listed = subprocess.run(["git", "ls-files", *folders], cwd=root, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout")
    files = [root / name for name in listed.stdout.splitlines() if "/vendor/" not in name]
    lines = {p: len(p.read_text().splitlines()) for p in files if p.suffix in kinds and p.is_file()}
    assert {p.name: n for p, n in lines.items() if n > 700} == {}


#: Lines of the functions in web/engine, web/tune and web/language that are longer than
#: `MOST_LINES` still, with what is inside of them.  The table may only shrink.
LONG_FUNCTIONS = {
    "engine/engine.js: makeEngine": 150,
    "engine/files.js: bundleFiles": 150,
    "engine/gpu_plan.js: planOf": 71,
    "engine/gpu_upload.js: upload": 85,
    "engine/channel.js: openChannel": 106,
    "engine/pool.js: makePool": 68,
    "engine/opfs_cache.js: openStore": 98,
    "engine/vet.js: objectionTo": 85,
    "engine/weight_decoding.js: widening": 76,
    "tune/loop/forecast.js: openForecast": 121,
    "tune/loop/pace.js: makePace": 164,
    "tune/records/ledger.js: openLedger": 120,
    "tune/sources/folder.js: folderSource": 77,
    "tune/sources/pyodide.js: pyodideSource": 67,
    "tune/sources/socket.js: socketSource": 182,
    "tune/trial/checks.js: checksOf": 71,
}
MOST_LINES = 60


def test_functions_of_scripts_are_short() -> None:
    """A class is no function, but its methods are; a closure counts with all that it holds."""
    need_bundler()
    script = Path(__file__).parents[1] / "helpers" / "function_lengths.mjs"
    command = ["node", script, str(MOST_LINES), PACKAGE / "web", "engine", "tune", "language"]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(told.stdout)
    assert {n: lines for n, lines in found.items() if lines > LONG_FUNCTIONS.get(n, 0)} == {}
    assert found.keys() == LONG_FUNCTIONS.keys(), "a row that nobody needs"


def test_functions_of_python_are_short() -> None:
    """A closure counts with all that it holds.  The signature of a command does not count: it is
    the list of its options."""

    def lines(path: Path, function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
        begin = function.body[0] if "cli" in path.parts else function
        return (function.end_lineno or 0) - begin.lineno + 1

    found = {
        f"{path.relative_to(PACKAGE)}: {node.name}": lines(path, node)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert found
    assert {name: n for name, n in found.items() if n > MOST_LINES} == {}


#: Folders and modules that also run where there is nothing but Python itself.
PORTABLE = ["kernel", "targets", "tuning/candidates", "tuning/page_compiler"]


def modules(name: str) -> list[str]:
    files = sorted((PACKAGE / name).rglob("*.py")) or [PACKAGE / f"{name}.py"]
    parts = [f.relative_to(PACKAGE.parent).with_suffix("").parts for f in files]
    return [".".join(p).removesuffix(".__init__") for p in parts]


@pytest.mark.parametrize("name", PORTABLE)
def test_kernel_generation_needs_only_the_standard_library(name: str) -> None:
    blocked = """
import importlib, sys
class Block:
    def find_spec(self, name, path=None, target=None):
        top = name.split('.')[0]
        if top not in sys.stdlib_module_names and top != 'tilewright':
            raise ImportError(f'{name} is not in the standard library')
sys.meta_path.insert(0, Block())
"""
    wanted = modules(name)
    assert wanted
    code = f"{blocked}\nfor name in {wanted}: importlib.import_module(name)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_what_must_hold_is_a_typed_error() -> None:
    """base/errors.py: `assert` ends with `python -O`, and tells nobody whose fault it is."""
    found = [
        f"{path}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Assert) or _raises(node, "AssertionError")
    ]
    assert not found


def _raises(node: ast.AST, name: str) -> bool:
    named = isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.func
    return isinstance(named, ast.Name) and named.id == name


#: Lines of the package with the word `Any`: a real type takes it away, and none may come.
ANY = 144


def test_docstrings_name_errors_in_sentences_of_their_own() -> None:
    """A list of arguments ends without a full stop, so a formatter may glue "Raises" to it."""
    glued = re.compile(r"[a-zA-Z0-9](?: |\n *)Raises\b")
    documented = ((p, n) for p in sorted(PACKAGE.rglob("*.py")) for n in nodes(p))
    found = [
        f"{path}: {getattr(node, 'name', '')}"
        for path, node in documented
        if isinstance(node, DOCUMENTED) and glued.search(ast.get_docstring(node) or "")
    ]
    assert not found, "put a blank line before it"


def test_hints_begin_with_a_capital() -> None:
    """A hint is a sentence behind the message (`TilewrightError.render`)."""
    folders = (PACKAGE, PACKAGE.parent / "lab")
    paths = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    hints = [(path, hint) for path in paths for hint in _hints(path)]
    assert hints
    assert not [f"{path}: {hint}" for path, hint in hints if hint[:1].islower()]


def _hints(path: Path) -> Iterator[str]:
    """How each literal begins that is passed as `hint`, also by a name of the file."""
    found = list(ast.walk(parsed(path)))
    given = [
        k.value for n in found if isinstance(n, ast.Call) for k in n.keywords if k.arg == "hint"
    ]
    names = {value.id for value in given if isinstance(value, ast.Name)}
    assigned = ((name, n.value) for n in found if isinstance(n, ast.Assign) for name in n.targets)
    given += [v for name, v in assigned if isinstance(name, ast.Name) and name.id in names]
    for value in given:
        yield from _beginnings(value)


def _beginnings(value: ast.expr) -> Iterator[str]:
    match value:
        case (
            ast.Constant(value=str(text))
            | ast.JoinedStr(values=[ast.Constant(value=str(text)), *_])
        ):
            yield text
        case ast.BinOp(left=left):
            yield from _beginnings(left)
        case ast.IfExp(body=one, orelse=other):
            yield from (*_beginnings(one), *_beginnings(other))


def test_any_only_shrinks() -> None:
    lines = (line for path in PACKAGE.rglob("*.py") for line in path.read_text().splitlines())
    found = sum(bool(re.search(r"\bAny\b", line)) for line in lines)
    assert found <= ANY, "give it a type instead"
