"""`--publish`: copies of checkpoints that are whole or not there, in place of older ones and of nothing else."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engines.alignment.publish import copy_checkpoint
from results.alignment import RECORD_FILE
from small_alignment import align, aligned, refused, write_alignment


def write_checkpoint(folder: Path, text: str) -> Path:
    """What a copy takes for a checkpoint: two files, of which one is the record."""
    folder.mkdir(parents=True)
    for name in (RECORD_FILE, "model.safetensors"):
        (folder / name).write_text(text)
    return folder


def texts_of(folder: Path) -> set[str]:
    """What the files of a checkpoint say."""
    return {path.read_text() for path in folder.iterdir()}


def no_space(*_: object, **__: object) -> None:
    raise shutil.Error([("a", "b", "[Errno 28] No space left on device: 'a'"), ("c", "d", "the same")])


def test_an_older_checkpoint_gives_way_and_nothing_else_is_left(tmp_path: Path) -> None:
    new, place = write_checkpoint(tmp_path / "work/a", "new"), tmp_path / "drafters"
    write_checkpoint(place / "a", "old")

    copy_checkpoint(new, place)

    assert texts_of(place / "a") == texts_of(new) == {"new"}
    assert [path.name for path in place.iterdir()] == ["a"]


def test_a_link_to_an_older_checkpoint_gives_way_and_its_target_stays(tmp_path: Path) -> None:
    new, old = write_checkpoint(tmp_path / "work/a", "new"), write_checkpoint(tmp_path / "old", "old")
    (tmp_path / "drafters").mkdir()
    (tmp_path / "drafters/a").symlink_to(old)

    copy_checkpoint(new, tmp_path / "drafters")

    assert (texts_of(tmp_path / "drafters/a"), texts_of(old)) == ({"new"}, {"old"})


def test_a_full_disk_is_one_reason_and_leaves_the_older_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, place = write_checkpoint(tmp_path / "work/a", "new"), tmp_path / "drafters"
    write_checkpoint(place / "a", "old")
    monkeypatch.setattr("engines.alignment.publish.shutil.copytree", no_space)

    with pytest.raises(OSError, match=r"drafters/a: the checkpoint could not be copied: \[Errno 28\] No space[^,]*$"):
        copy_checkpoint(new, place)

    assert texts_of(place / "a") == {"old"}
    assert [path.name for path in place.iterdir()] == ["a"]


def test_an_older_checkpoint_comes_back_where_the_new_one_cannot_be_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, place = write_checkpoint(tmp_path / "work/a", "new"), tmp_path / "drafters"
    write_checkpoint(place / "a", "old")
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.name.endswith(".partial"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="could not be copied"):
        copy_checkpoint(new, place)

    assert texts_of(place / "a") == {"old"}


def test_a_copy_is_at_no_time_half_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at before every step that takes something away or moves it: a kill could come at any."""
    new, place = write_checkpoint(tmp_path / "work/a", "new"), tmp_path / "drafters"
    write_checkpoint(place / "a", "old")
    seen: list[tuple[int, set[str]]] = []
    for name in ("rename", "unlink", "rmdir"):
        monkeypatch.setattr(os, name, looking(getattr(os, name), place / "a", seen))

    copy_checkpoint(new, place)

    assert len(seen) >= 5
    assert all(found in ((2, {"old"}), (2, {"new"}), (0, set())) for found in seen)


def looking(step: Callable[..., None], folder: Path, seen: list[tuple[int, set[str]]]) -> Callable[..., None]:
    """The step, after a look at the files of a folder."""

    def looked(*given: object, **settings: object) -> None:
        there = folder.is_dir()
        seen.append((len(list(folder.iterdir())), texts_of(folder)) if there else (0, set()))
        step(*given, **settings)

    return looked


def test_what_a_killed_copy_left_is_gone_after_the_next(tmp_path: Path) -> None:
    new, place = write_checkpoint(tmp_path / "work/a", "new"), tmp_path / "drafters"
    write_checkpoint(place / ".a.partial", "half")
    write_checkpoint(place / ".a.older", "old")

    copy_checkpoint(new, place)

    assert [path.name for path in place.iterdir()] == ["a"]
    assert texts_of(place / "a") == {"new"}


def test_a_folder_that_is_no_checkpoint_is_not_replaced(tmp_path: Path) -> None:
    config, place = write_alignment(tmp_path), tmp_path / "drafters"
    (place / "first").mkdir(parents=True)
    (place / "first/thesis.txt").write_text("years of work")

    line = refused(align(config, "--publish", str(place)))

    assert line.endswith(
        "drafters/first: something else than a checkpoint with alignment.json is there; it is not replaced"
    )
    assert (place / "first/thesis.txt").exists()
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("inside", ["", "/corpus", "/first", "/new"])
def test_the_work_folder_takes_no_copies_of_its_own_checkpoints(tmp_path: Path, inside: str) -> None:
    line = refused(align(write_alignment(tmp_path), "--publish", f"{tmp_path}/work{inside}", "--dry-run"))

    assert "it lies in the work folder" in line
    assert not (tmp_path / "work").exists()


def test_a_link_to_the_work_folder_is_the_work_folder(tmp_path: Path) -> None:
    work = aligned(write_alignment(tmp_path))
    (tmp_path / "link").symlink_to(work)

    assert "it lies in the work folder" in refused(align(tmp_path / "align.toml", "--publish", str(tmp_path / "link")))


def test_a_copy_does_not_take_the_place_of_its_parent(tmp_path: Path) -> None:
    config = write_alignment(tmp_path, ("[drafter.first]", "[drafter.again]"), ('"parent"', '"drafters/again"'))
    shutil.move(tmp_path / "parent", tmp_path / "drafters/again")

    line = refused(align(config, "--publish", str(tmp_path / "drafters"), "--dry-run"))

    assert line.endswith("drafters/again is verifier or parent of a drafter; it is not replaced")


def test_a_folder_that_cannot_be_written_is_one_line_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_alignment(tmp_path)

    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("harness.commands.align.tempfile.TemporaryFile", refuse)
    line = refused(align(config, "--publish", str(tmp_path / "drafters")))

    assert line.endswith("drafters: cannot be written: Permission denied")
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("kind", ["a file", "a link to nothing"])
def test_what_is_no_folder_is_one_line_before_any_work(tmp_path: Path, kind: str) -> None:
    config, place = write_alignment(tmp_path), tmp_path / "there"
    place.write_text("") if kind == "a file" else place.symlink_to(tmp_path / "nowhere")

    assert f"--publish: {place} is {kind}; it must be a folder" in refused(align(config, "--publish", str(place)))
    assert not (tmp_path / "work").exists()


def test_a_corpus_alone_is_not_published(tmp_path: Path) -> None:
    line = refused(align(write_alignment(tmp_path), "--corpus-only", "--publish", str(tmp_path / "drafters")))

    assert line == "streak: --publish and --corpus-only: not together; a corpus alone has no checkpoints"
