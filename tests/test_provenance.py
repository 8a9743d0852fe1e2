"""Provenance: plain values that say where a result comes from, and digests that depend on the value alone."""

import hashlib
import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import results
from results.provenance import PACKAGES, collect_provenance, digest_file, digest_of

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def source_seen_from(folder: Path) -> dict[str, Any]:
    """`source` as a copy of results/ in this folder reports it."""
    program = "import json; from results.provenance import collect_provenance; print(json.dumps(collect_provenance()))"
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True)
    source: dict[str, Any] = json.loads(done.stdout)["source"]
    return source


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit that holds a copy of results/."""
    ignored = shutil.ignore_patterns("__pycache__", "studies")
    shutil.copytree(Path(results.__file__).parent, tmp_path / "results", ignore=ignored)
    (tmp_path / ".gitignore").write_text("__pycache__/\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "all", "--no-gpg-sign")
    return tmp_path


def test_provenance_is_plain_values() -> None:
    found = collect_provenance({"study": {"arms": ["vanilla"]}})

    assert json.loads(json.dumps(found)) == found


def test_provenance_names_every_package_and_a_missing_one_is_none() -> None:
    packages = collect_provenance()["packages"]

    assert set(packages) == set(PACKAGES)
    assert packages["numpy"]


def test_the_start_is_a_moment_in_utc() -> None:
    started = datetime.fromisoformat(collect_provenance()["started_utc"])

    assert started.utcoffset() == UTC.utcoffset(None)


def test_extra_values_may_not_replace_what_was_found() -> None:
    with pytest.raises(ValueError, match="extra provenance 'python' is a name already taken"):
        collect_provenance({"python": "4.0"})


def test_collecting_provenance_imports_none_of_the_packages() -> None:
    program = (
        "import sys, results, analysis; from results.provenance import *; collect_provenance(); "
        "print(sorted({'torch', 'transformers', 'sglang', 'pandas'} & set(sys.modules)))"
    )
    root = Path(results.__file__).parents[1]

    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


@needs_git
def test_a_clean_checkout_has_its_commit(checkout: Path) -> None:
    assert source_seen_from(checkout) == {"commit": git(checkout, "rev-parse", "HEAD"), "dirty": False}


@needs_git
def test_a_changed_file_is_dirt(checkout: Path) -> None:
    (checkout / "results" / "records.py").write_text("")

    assert source_seen_from(checkout)["dirty"] is True


@needs_git
def test_a_new_file_is_dirt(checkout: Path) -> None:
    (checkout / "new.py").write_text("")

    assert source_seen_from(checkout)["dirty"] is True


@needs_git
def test_a_study_being_written_is_no_dirt(checkout: Path) -> None:
    study = checkout / "results" / "studies" / "demo"
    study.mkdir(parents=True)
    (study / "study.toml").write_text("")

    assert source_seen_from(checkout)["dirty"] is False


@needs_git
def test_an_installed_copy_within_another_checkout_has_no_commit(checkout: Path) -> None:
    installed = checkout / "venv" / "site-packages"
    shutil.copytree(checkout / "results", installed / "results")

    assert source_seen_from(installed) == {"commit": None, "dirty": None}


def test_a_digest_is_twelve_hex_digits_of_the_canonical_json() -> None:
    expected = hashlib.sha256(b'{"a":[1,"x",null],"b":0.5}').hexdigest()[:12]

    assert digest_of({"b": 0.5, "a": (1, "x", None)}) == expected


def test_equal_settings_written_differently_have_one_digest() -> None:
    assert digest_of({"temperature": 1, "stop": ("a",)}) == digest_of({"stop": ["a"], "temperature": 1.0})


@pytest.mark.parametrize(("first", "second"), [(1, "1"), (1, True), (0, None), ([], {}), (["ab"], ["a", "b"])])
def test_different_values_have_different_digests(first: object, second: object) -> None:
    assert digest_of(first) != digest_of(second)


@pytest.mark.parametrize("value", [Path(), {1: "a"}, {"a": {2}}, b"bytes"])
def test_what_json_cannot_say_has_no_digest(value: object) -> None:
    with pytest.raises(ValueError, match="no digest of"):
        digest_of(value)


def test_the_digest_of_a_file_is_its_sha256(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"abc")

    assert digest_file(tmp_path / "weights") == hashlib.sha256(b"abc").hexdigest()
