"""The house's floors, checked on the syntax tree of every file: imports only go down, and never in a circle.

An import counts wherever it stands: at the top, in a function, under TYPE_CHECKING, in `import_module("...")`, and in a
whole string that names one of our modules (`"engines.loader:load"`), since a catalog imports by such names.
"""

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = {"results": 1, "engines": 2, "tasks": 2, "analysis": 2, "harness": 3}
ENGINES = ("engines/",)
HEAVY = {
    "torch": ENGINES,
    "transformers": ENGINES,
    "tokenizers": ENGINES,
    "safetensors": ENGINES,
    "gguf": ENGINES,
    "peft": ENGINES,
    "sglang": ("engines/sglang_engine.py", "engines/sglang_plugin/"),
    "matplotlib": ("analysis/",),
    "datasets": ("tasks/",),
}
ON_DEMAND = ("datasets",)
LONGEST_FILE = 320
VAGUE_NAMES = ("utils.py", "common.py", "helpers.py", "base.py", "statistics.py")
IMPORTERS = ("import_module", "__import__")


class Import(NamedTuple):
    """One imported name, `a.b.c`, and where it stands; `at_import` means that importing the file runs it."""

    path: str
    line: int
    name: str
    at_import: bool

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"


def room_files(root: Path) -> list[Path]:
    """Every Python file of the rooms, sorted."""
    return sorted(path for room in FLOORS for path in (root / room).rglob("*.py"))


def modules_of(root: Path) -> set[str]:
    """The dotted names of all files of the rooms."""
    return {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__") for path in room_files(root)
    }


def names_in(node: ast.AST, package: list[str], modules: set[str]) -> list[str]:
    """The dotted names that one node imports; relative ones are made absolute from the file's package."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            start = package[: max(0, len(package) - level + 1)] if level else []
            return [".".join([*start, *([module] if module else []), alias.name]) for alias in names]
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[ast.Constant(value=str(target)), *_]):
            return [target] if name in IMPORTERS else []
        case ast.Constant(value=str(text)):
            name = text.split(":")[0]
            return [name] if "." in name and name in modules else []
    return []


def walk(node: ast.AST, at_import: bool = True) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes below, each with whether importing the file runs it."""
    for child in ast.iter_child_nodes(node):
        runs = at_import and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield child, runs
        yield from walk(child, runs)


def imports_of(root: Path) -> list[Import]:
    """All imports of all files of the rooms, wherever they stand."""
    found: list[Import] = []
    modules = modules_of(root)
    for path in room_files(root):
        place = path.relative_to(root)
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        for node, at_import in walk(tree):
            names = names_in(node, list(place.parts[:-1]), modules)
            found += [Import(place.as_posix(), getattr(node, "lineno", 0), name, at_import) for name in names]
    return found


def file_of(name: str, root: Path) -> str | None:
    """The file of ours that a dotted name leads to: the module itself, or the one that defines the name."""
    parts = name.split(".")
    if parts[0] not in FLOORS:
        return None
    for length in range(len(parts), 0, -1):
        stem = Path(*parts[:length])
        for candidate in (stem.with_suffix(".py"), stem / "__init__.py"):
            if (root / candidate).is_file():
                return candidate.as_posix()
    return None


def upward_arrows(root: Path) -> list[str]:
    """Imports from a room to another one that does not lie below it."""
    arrows = []
    for found in imports_of(root):
        here, there = found.path.split("/")[0], found.name.split(".")[0]
        if there in FLOORS and there != here and FLOORS[there] >= FLOORS[here]:
            arrows.append(f"{found.place}: {here} (floor {FLOORS[here]}) imports {there} (floor {FLOORS[there]})")
    return arrows


def circle(root: Path) -> list[str]:
    """The files of one import circle, in its order, or nothing."""
    graph: dict[str, set[str]] = {}
    for found in imports_of(root):
        target = file_of(found.name, root)
        if target is not None:
            graph.setdefault(found.path, set()).add(target)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(reversed(error.args[1]))
    return []


def misplaced_packages(root: Path) -> list[str]:
    """Heavy packages that are imported in a room which has to do without them, or too early."""
    wrong = []
    for found in imports_of(root):
        package = found.name.split(".")[0]
        allowed = HEAVY.get(package)
        if allowed and not found.path.startswith(allowed):
            wrong.append(f"{found.place}: {package} is for {', '.join(allowed)}")
        elif package in ON_DEMAND and found.at_import:
            wrong.append(f"{found.place}: {package} is imported on demand, inside the function that needs it")
    return wrong


def long_files(root: Path) -> list[str]:
    """Files over the limit, with their number of lines."""
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in room_files(root)}
    return [f"{path.relative_to(root)}: {count} lines" for path, count in lines.items() if count > LONGEST_FILE]


def badly_named(root: Path) -> list[str]:
    """Files whose name says nothing, and a folder that would shadow the sglang package."""
    paths = [path.relative_to(root) for path in room_files(root)]
    return [str(path) for path in paths if path.name in VAGUE_NAMES or "sglang" in path.parts[:-1]]


def plant(root: Path, files: dict[str, str]) -> Path:
    """Write a small tree of rooms."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_imports_only_go_down() -> None:
    assert upward_arrows(ROOT) == []


def test_no_files_import_each_other_in_a_circle() -> None:
    assert circle(ROOT) == []


def test_heavy_packages_stay_in_their_rooms() -> None:
    assert misplaced_packages(ROOT) == []


def test_every_file_fits_a_sitting() -> None:
    assert long_files(ROOT) == []


def test_every_file_name_says_what_is_inside() -> None:
    assert badly_named(ROOT) == []


def test_every_room_is_there_and_looked_at() -> None:
    rooms = {path.relative_to(ROOT).parts[0] for path in room_files(ROOT)}

    assert rooms == set(FLOORS)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("results/ledger.py", "import harness.study"),
        ("tasks/gsm8k.py", "from engines import contract"),
        ("engines/reference.py", "def load():\n    from tasks.contract import Problem"),
        ("analysis/frames.py", "if TYPE_CHECKING:\n    from harness.study import Study"),
        ("tasks/gsm8k.py", "importlib.import_module('engines.loader')"),
        ("tasks/gsm8k.py", "ENGINE = 'engines.loader:load'"),
        ("results/ledger.py", "from .. import harness"),
    ],
)
def test_an_upward_arrow_is_caught(tmp_path: Path, path: str, text: str) -> None:
    found = upward_arrows(plant(tmp_path, {"engines/loader.py": "", path: text}))

    assert {line.split(":")[0] for line in found} == {path}


def test_a_downward_arrow_passes(tmp_path: Path) -> None:
    files = {
        "harness/run.py": "from engines.contract import Engine",
        "engines/contract.py": "from results.records import Round",
        "results/ledger.py": "NAME = 'harness.log'",
    }

    assert upward_arrows(plant(tmp_path, files)) == []


@pytest.mark.parametrize(
    "way_back",
    [
        "import tasks.a",
        "from tasks.a import name",
        "from tasks import a",
        "from . import a",
        "from .a import name",
        "def late():\n    import tasks.a",
        "if TYPE_CHECKING:\n    from tasks.a import name",
        "A = 'tasks.a:name'",
    ],
)
def test_a_circle_is_caught(tmp_path: Path, way_back: str) -> None:
    files = {"tasks/a.py": "from tasks.b import x", "tasks/b.py": "import tasks.c", "tasks/c.py": way_back}

    found = circle(plant(tmp_path, files))

    assert set(found) == set(files)


def test_a_circle_through_a_package_is_caught(tmp_path: Path) -> None:
    files = {"tasks/__init__.py": "from tasks.a import run", "tasks/a.py": "from tasks import VERSION"}

    found = circle(plant(tmp_path, files))

    assert set(found) == set(files)


def test_two_ways_down_are_no_circle(tmp_path: Path) -> None:
    files = {"tasks/a.py": "import tasks.b, tasks.c", "tasks/b.py": "from tasks import c", "tasks/c.py": ""}

    assert circle(plant(tmp_path, files)) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("harness/embedded.py", "import torch"),
        ("tasks/gsm8k.py", "def load():\n    from transformers import AutoTokenizer"),
        ("analysis/frames.py", "import_module('torch')"),
        ("harness/report.py", "import matplotlib.pyplot as plt"),
        ("engines/reference.py", "from sglang import Engine"),
        ("engines/reference.py", "def load():\n    import datasets"),
        ("tasks/gsm8k.py", "from datasets import load_dataset"),
    ],
)
def test_a_misplaced_heavy_import_is_caught(tmp_path: Path, path: str, text: str) -> None:
    found = misplaced_packages(plant(tmp_path, {path: text}))

    assert [line.split(":")[0] for line in found] == [path]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("engines/reference.py", "import torch"),
        ("engines/sglang_engine.py", "import sglang"),
        ("engines/sglang_plugin/worker.py", "import sglang"),
        ("analysis/figure.py", "import matplotlib"),
        ("tasks/gsm8k.py", "def load():\n    from datasets import load_dataset"),
        ("results/provenance.py", "VERSIONS_OF = ('torch', 'sglang')"),
    ],
)
def test_a_heavy_import_in_its_own_room_passes(tmp_path: Path, path: str, text: str) -> None:
    assert misplaced_packages(plant(tmp_path, {path: text})) == []


def test_a_file_that_is_too_long_is_caught(tmp_path: Path) -> None:
    tree = plant(tmp_path, {"tasks/a.py": "x = 1\n" * (LONGEST_FILE + 1), "tasks/b.py": "x = 1\n" * LONGEST_FILE})

    assert long_files(tree) == ["tasks/a.py: 321 lines"]


def test_a_vague_name_is_caught(tmp_path: Path) -> None:
    tree = plant(tmp_path, {"tasks/utils.py": "", "engines/sglang/load.py": "", "tasks/answers.py": ""})

    assert badly_named(tree) == ["engines/sglang/load.py", "tasks/utils.py"]
