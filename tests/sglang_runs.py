"""Runs SGLang's CPU engine in a process of its own and hands back what it generated: `python sglang_runs.py JOB OUT`.

A job is a JSON object: `engine` (server arguments), `further` (what STREAK_SPECDIFF2 holds) and `batches`: lists of
requests that are generated together, each with prompt ids and SGLang's sampling parameters. The prompt of a request
with `after` stands behind the whole text of an earlier one.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
MODELS = ROOT / "engines" / "embedded"
ENGINE = {
    "device": "cpu",
    "attention_backend": "specdiff_torch",
    "sampling_backend": "pytorch",
    "dtype": "float32",
    "disable_cuda_graph": True,
    "mem_fraction_static": 0.6,
    "max_total_tokens": 8192,
    "max_running_requests": 8,
    "log_level": "error",
}
LONGEST_SECONDS = 1800
PATIENCE = 600

needs_sglang = [
    pytest.mark.sglang,
    pytest.mark.skipif(find_spec("sglang") is None, reason="the sglang extra is not installed: make test-sglang"),
]

Request = Mapping[str, Any]


class Answer(NamedTuple):
    """What SGLang says of one request; an `error` stands for a request that was refused."""

    ids: list[int]
    cached: int = 0
    retractions: int = 0
    rounds: int = 0
    finish: str = ""
    logprobs: list[float] | None = None
    error: str = ""


class Ran(NamedTuple):
    """What an engine answered to each batch, whether its rounds overlap, and how many requests shared one at most."""

    answers: list[list[Answer]]
    overlaps: bool
    most_running: int


def request(prompt: Sequence[int], tokens: int, *, rid: str | None = None, **sampling: Any) -> Request:
    """A request for exactly `tokens` tokens, unless the sampling parameters say otherwise."""
    named = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True} | sampling
    logprobs = named.pop("return_logprob", False)
    return {"input_ids": list(prompt), "sampling_params": named, "rid": rid, "return_logprob": logprobs}


def continued(batch: int, place: int, more: Sequence[int], tokens: int, rid: str) -> Request:
    """A request whose prompt is the whole text of one in an earlier batch, and `more` behind it."""
    return dict(request(more, tokens, rid=rid)) | {"after": [batch, place]}


def run(
    folder: Path,
    engine: Mapping[str, Any],
    batches: Sequence[Sequence[Request]],
    *,
    further: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Ran:
    """Generate the batches one after the other on one engine; whatever it says is in the error of a failure."""
    from engines.sglang_plugin.cpu import cpu_environment

    job, out = folder / "job.json", folder / "answers.json"
    job.write_text(json.dumps({"engine": ENGINE | dict(engine), "batches": batches}), encoding="utf-8")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    paths = [cpu_environment().get("PYTHONPATH", ""), str(ROOT), (environment or {}).get("PYTHONPATH", "")]
    child = clean | cpu_environment() | {"SGLANG_PLUGINS": "streak", "STREAK_SPECDIFF2": json.dumps(further or {})}
    child |= dict(environment or {}) | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    command = [sys.executable, __file__, str(job), str(out)]
    done = subprocess.run(
        command, env=child, capture_output=True, text=True, check=False, timeout=LONGEST_SECONDS, cwd=folder
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    ran = json.loads(out.read_text(encoding="utf-8"))
    answers = [[Answer(**answer) for answer in batch] for batch in ran.pop("answers")]
    return Ran(answers, **ran)


def answer_of(output: Mapping[str, Any]) -> dict[str, Any]:
    """SGLang's answer as plain values."""
    meta = output["meta_info"]
    logprobs = meta.get("output_token_logprobs")
    return {
        "ids": output["output_ids"],
        "cached": meta["cached_tokens"],
        "retractions": meta.get("num_retractions") or 0,
        "rounds": meta.get("spec_verify_ct", 0),
        "finish": meta["finish_reason"]["type"],
        "logprobs": [entry[0] for entry in logprobs] if logprobs else None,
    }


def text_before(after: Sequence[int], batches: Sequence[Sequence[Request]], answers: list[Any]) -> list[int]:
    """The whole text of an earlier request."""
    if not after:
        return []
    batch, place = after
    return [*batches[batch][place]["input_ids"], *answers[batch][place]["ids"]]


def generate(engine: Any, batch: Sequence[Request]) -> list[dict[str, Any]]:
    """A batch's answers, or the one error that it was refused with."""
    columns = {name: [each[name] for each in batch] for name in batch[0] if name != "after"}
    if None in columns["rid"]:
        del columns["rid"]
    try:
        return [answer_of(output) for output in engine.generate(**columns)]
    except ValueError as error:
        return [{"ids": [], "error": str(error)}]


def main(job: Path, out: Path) -> None:
    """What the child process does."""
    import sglang

    from engines.serving.resolved import read_rounds

    spec = json.loads(job.read_text(encoding="utf-8"))
    engine = sglang.Engine(**spec["engine"])
    try:
        batches, answers = spec["batches"], list[Any]()
        for batch in batches:
            for each in batch:
                each["input_ids"] = text_before(each.get("after") or [], batches, answers) + each["input_ids"]
            answers.append(generate(engine, batch))
        info = engine.get_server_info()
        ran = {"overlaps": not info["disable_overlap_schedule"], "most_running": max(read_rounds(info), default=0)}
        out.write_text(json.dumps(ran | {"answers": answers}), encoding="utf-8")
        wait_until_free(engine)
    finally:
        engine.shutdown()


def wait_until_free(engine: Any) -> None:
    """SGLang empties its cache once no request is left; a round may still be under way. Leaks end its process."""
    for _ in range(PATIENCE):
        if engine.flush_cache().success:
            return
        time.sleep(0.1)
    raise RuntimeError("the pool is not free after the last request")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
