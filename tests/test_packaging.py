"""The distribution: five generic top-level names that must be ours alone, a light front door, and a complete wheel."""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import entry_points, packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DISTRIBUTION = "streak-harness"
ROOMS = ("harness", "engines", "tasks", "analysis", "results")
EMBEDDED = "engines/embedded"
STUDIES = "results/studies/"
COMMANDS = ("run", "grade", "keep", "demo", "list", "bench", "audit", "embedded", "align", "forecast")
SLOW_TO_IMPORT = {"torch", "transformers", "datasets"}

IMPORT_ALL_OF = """
import importlib, pkgutil, {room}
for module in pkgutil.walk_packages({room}.__path__, "{room}."):
    importlib.import_module(module.name)
"""
STREAK = """
import sys
from harness.cli import main
sys.argv = ["streak", "{argument}"]
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
"""


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """What a command prints, with nothing of this checkout on its path; a failure shows all of it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def loaded_by(code: str, cwd: Path) -> set[str]:
    """Which of the slow packages a fresh interpreter has loaded after some code."""
    probe = f"{code}\nimport sys\nprint('loaded:', *({SLOW_TO_IMPORT!r} & sys.modules.keys()))"
    return set(run(sys.executable, "-c", probe, cwd=cwd).split("loaded:")[-1].split())


def model_files() -> set[str]:
    """Every file of the bundled model directories, a model directory being one with a config.json."""
    folders = [path.parent for path in (ROOT / EMBEDDED).rglob("config.json")]
    return {path.relative_to(ROOT).as_posix() for folder in folders for path in folder.iterdir() if path.is_file()}


def data_files() -> set[str]:
    """Every file of the rooms that is not code; committed studies stay with the sources."""
    files = {path.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("*") if path.is_file()}
    return {name for name in files if not name.endswith((".py", ".pyc")) and not name.startswith(STUDIES)}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources so that no old build folder can leak into it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for room in ROOMS:
        shutil.copytree(ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source, cwd=source)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def contents(wheel: Path) -> set[str]:
    """The names of the files in the wheel."""
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel installed into it, far from the sources."""
    target = tmp_path_factory.mktemp("elsewhere")
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", target, wheel, cwd=target)
    return target


@pytest.mark.parametrize("room", ROOMS)
def test_a_top_level_name_is_ours_alone(room: str) -> None:
    assert set(packages_distributions()[room]) == {DISTRIBUTION}


def test_the_streak_command_is_ours() -> None:
    found = {entry.value for entry in entry_points(group="console_scripts", name="streak")}

    assert found == {"harness.cli:main"}


@pytest.mark.parametrize("room", ROOMS)
def test_the_editable_install_works_from_any_folder(room: str, tmp_path: Path) -> None:
    found = run(sys.executable, "-c", f"import {room}; print({room}.__file__)", cwd=tmp_path)

    assert Path(found.strip()) == ROOT / room / "__init__.py"


@pytest.mark.parametrize("room", ["results", "tasks", "analysis"])
def test_no_file_of_a_light_room_loads_torch(room: str, tmp_path: Path) -> None:
    assert loaded_by(IMPORT_ALL_OF.format(room=room), tmp_path) == set()


@pytest.mark.parametrize("name", ["harness", "engines", "engines.contract"])
def test_a_light_module_does_not_load_torch(name: str, tmp_path: Path) -> None:
    assert loaded_by(f"import {name}", tmp_path) == set()


@pytest.mark.parametrize("argument", ["--help", "list"])
def test_a_quick_command_does_not_load_torch(argument: str, tmp_path: Path) -> None:
    assert loaded_by(STREAK.format(argument=argument), tmp_path) == set()


def test_a_loaded_torch_would_be_seen(tmp_path: Path) -> None:
    assert "torch" in loaded_by("import torch", tmp_path)


def test_the_wheel_holds_every_module(contents: set[str]) -> None:
    modules = {path.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("*.py")}

    assert modules - contents == set()


def test_the_wheel_holds_nothing_but_the_rooms(contents: set[str]) -> None:
    top = {name.split("/")[0] for name in contents if ".dist-info/" not in name}

    assert top == set(ROOMS)


def test_the_wheel_holds_the_published_numbers(contents: set[str]) -> None:
    tables = {path.relative_to(ROOT).as_posix() for path in (ROOT / "results/paper").glob("*.csv")}

    assert tables
    assert (tables | {"results/paper/README.md"}) - contents == set()


def test_the_wheel_holds_every_file_of_the_bundled_models(contents: set[str]) -> None:
    files = model_files()
    if not files:
        pytest.skip(f"no model directory in {EMBEDDED} yet")

    assert files - contents == set()


def test_the_wheel_holds_every_data_file(contents: set[str]) -> None:
    assert data_files() - contents == set()


def test_the_wheel_runs_away_from_the_sources(elsewhere: Path, tmp_path: Path) -> None:
    code = "import engines; print(engines.__file__)"

    found = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(elsewhere))

    assert Path(found.strip()) == elsewhere / "engines" / "__init__.py"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_wheel_explains_itself(command: str, elsewhere: Path, tmp_path: Path) -> None:
    script = elsewhere / "bin" / "streak"

    help_text = run(sys.executable, script, command, "--help", cwd=tmp_path, PYTHONPATH=str(elsewhere))

    assert "Usage:" in help_text


@pytest.mark.parametrize("section", ["tasks", "models"])
def test_the_wheel_lists_what_it_knows(section: str, elsewhere: Path, tmp_path: Path) -> None:
    script = elsewhere / "bin" / "streak"

    assert run(sys.executable, script, "list", section, cwd=tmp_path, PYTHONPATH=str(elsewhere)).strip()
