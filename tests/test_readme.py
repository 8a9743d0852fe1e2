"""The pages keep their word: commands exist, quick ones run, links lead somewhere, the study can be read."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.study import read_study

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
QUICK = (["streak", "list"], ["streak", "--help"])


def blocks(text: str, *languages: str) -> list[str]:
    """The fenced blocks of a page in these languages."""
    return [body for language, body in BLOCK.findall(text) if language in languages]


def commands(text: str) -> list[list[str]]:
    """The commands of a page, as words: `$ ` lines of console blocks, and all lines of sh blocks."""
    lines = [line[2:] for block in blocks(text, "console") for line in block.splitlines() if line.startswith("$ ")]
    lines += [line for block in blocks(text, "sh") for line in block.splitlines()]
    found = [shlex.split(line, comments=True) for line in lines]
    return [[words[0].removeprefix(".venv/bin/"), *words[1:]] for words in found if words]


def named(tool: str) -> list[list[str]]:
    """The commands of all pages that start with a tool."""
    every = [words for page in PAGES for words in commands((ROOT / page).read_text(encoding="utf-8"))]
    return [words for words in every if words[0] == tool]


def files_linked(text: str) -> list[str]:
    """Where a page's links and images lead, as far as they stay in the repository."""
    targets = [target.split("#")[0] for target in LINK.findall(BLOCK.sub("", text))]
    return [target for target in targets if target and "://" not in target]


def shown(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command from the repository: wide enough that no help line is cut, and not as a part of an outer make."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    env = outer | {"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}
    return subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=120)


def streak(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the installed `streak` command."""
    return shown(str(Path(sys.executable).with_name("streak")), *words)


@pytest.mark.parametrize("words", named("streak"), ids=" ".join)
def test_a_streak_command_of_the_pages_exists_with_its_options(words: list[str]) -> None:
    subcommand = [word for word in words[1:2] if not word.startswith("-")]
    options = {word.split("=")[0] for word in words[1:] if word.startswith("--")}

    done = streak(*subcommand, "--help")

    assert done.returncode == 0, done.stderr
    assert {option for option in options if option not in done.stdout} == set()


@pytest.mark.parametrize("words", [words for words in named("streak") if words in QUICK], ids=" ".join)
def test_a_quick_command_of_the_pages_runs(words: list[str]) -> None:
    done = streak(*words[1:])

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", named("make"), ids=" ".join)
def test_a_make_target_of_the_pages_exists(words: list[str]) -> None:
    done = shown("make", "--dry-run", *words[1:])

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md", "docs/NOTATION.md", "docs/LOG.md"])
def test_every_link_to_a_file_leads_somewhere(page: str) -> None:
    path = ROOT / page
    targets = files_linked(path.read_text(encoding="utf-8"))

    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_the_study_of_the_readme_is_one(tmp_path: Path) -> None:
    (block,) = blocks((ROOT / "README.md").read_text(encoding="utf-8"), "toml")
    (tmp_path / "study.toml").write_text(block, encoding="utf-8")

    study = read_study(tmp_path)

    assert study.baseline == "vanilla"


def test_the_pages_name_both_commands_of_the_product() -> None:
    assert {"demo", "test"} <= {words[1] for words in named("make")}


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    assert ["make", "test"] in named("make")
    assert "\nmake test\n" in script


def test_ci_can_be_started() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_commands_are_read_from_a_page() -> None:
    page = "```console\n$ .venv/bin/streak list --all  # everything\na line of output\n```\n```sh\nmake demo\n```\n"

    assert commands(page) == [["streak", "list", "--all"], ["make", "demo"]]


def test_a_missing_make_target_is_seen() -> None:
    assert shown("make", "--dry-run", "no-such-target").returncode != 0


def test_links_outside_the_repository_are_left_alone() -> None:
    page = "[a](docs/LOG.md#top) ![b](docs/demo.png) [c](https://example.org/x) [d](#here)"

    assert files_linked(page) == ["docs/LOG.md", "docs/demo.png"]
