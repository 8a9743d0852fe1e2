"""A plugin of the tests' own: writes down what SPECDIFF2's drafter drafts, into the file that SPY_FILE names."""

import json
import os
from pathlib import Path
from typing import Any

ENTRY_POINT = "[sglang.srt.plugins]\nspy = sglang_spy:register\n"
METADATA = "Metadata-Version: 2.1\nName: streak-spy\nVersion: 0\n"


def install(folder: Path) -> None:
    """Make a folder on PYTHONPATH one in which Python finds the plugin's entry point."""
    information = folder / "streak_spy-0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(METADATA, encoding="utf-8")
    (information / "entry_points.txt").write_text(ENTRY_POINT, encoding="utf-8")


def register() -> None:
    """What SGLang calls in each of its processes."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register("engines.sglang_plugin.drafter.Drafter.draft", note, HookType.AFTER)


def note(drafted: Any, _drafter: Any, batch: Any, bonus: Any, *others: Any) -> None:
    """One line per request of a batch: its id, the tokens before the bonus token, that token and the drafts."""
    counts = others[1]
    lengths = (batch.seq_lens + counts).tolist()
    with Path(os.environ["SPY_FILE"]).open("a", encoding="utf-8") as file:
        for each, length, token, drafts in zip(batch.reqs, lengths, bonus.tolist(), drafted.tolist(), strict=True):
            file.write(json.dumps({"rid": each.rid, "length": length, "bonus": token, "drafted": drafts}) + "\n")
