"""The corpus: the frozen verifier's own continuations of prompts, written by an engine, kept in a folder.

Takes chats, knows no task. `corpus.json` says which verifier wrote under which template; `texts.jsonl` has a line per
continuation (results/ledger.py: append-only, a killed run goes on). A corpus of another verifier, template or sampling
is refused, never mixed.
"""

import reprlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from engines.alignment.examples import Example
from engines.contract import Engine, Request
from engines.json_object import is_whole, read_json
from engines.sampling import Sampling
from engines.speculative.distributions import stream_seed
from results.ledger import Ledger, read_rows, write_rows
from results.provenance import digest_of

IDENTITY_FILE, TEXTS_FILE = "corpus.json", "texts.jsonl"
KEY = ("prompt_id", "temperature", "sample")
SHORTEST_RESPONSE = 2
"""Tokens: a window needs an anchor and a token after it."""

TextKey: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What every text of a corpus has in common.

    thinking: the chat template's flag, None where it was not set
    """

    verifier_digest: str
    vocab_size: int
    chat_template: str
    thinking: bool | None
    number_format: str
    top_p: float
    max_tokens: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A continuation to have: of which chat, at which temperature, and the how-manieth."""

    messages: Sequence[Mapping[str, str]]
    prompt_ids: list[int]
    temperature: float
    sample: int

    @property
    def key(self) -> TextKey:
        """Its place in the ledger; a prompt goes by its token ids."""
        return digest_of(self.prompt_ids), self.temperature, self.sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A continuation as the verifier wrote it.

    seconds: wall time since the text before it was done, so that they add up to the time that all took
    error:   why there is none
    """

    key: TextKey
    prompt_ids: list[int]
    response_ids: list[int]
    finished: bool
    seconds: float
    error: str | None

    @property
    def is_usable(self) -> bool:
        """Whether a window can be cut from it."""
        return self.error is None and len(self.response_ids) >= SHORTEST_RESPONSE

    @property
    def temperature(self) -> float:
        """At which it was drawn."""
        return float(self.key[1])


def text_seed(seed: int, key: TextKey) -> int:
    """The seed of a continuation's draws: of a sample, not of its place in a run."""
    return stream_seed(seed, f"corpus/{key[0]}/{float(key[1])}/{key[2]}")


def claim(path: Path, own: Mapping[str, Any]) -> None:
    """Write down on what a folder's contents depend, or compare with what is written there.

    Raises ValueError where that is something else.
    """
    refuse_other(path, own)
    if not path.is_file():
        write_rows(path, [own])


def refuse_other(path: Path, own: Mapping[str, Any]) -> None:
    """Raise ValueError where something else is written there."""
    found = read_json(path) if path.is_file() else own
    for name, value in own.items():
        if found.get(name) != value:
            label, was, now = innermost(name, found.get(name), value)
            raise ValueError(
                f"{path}: {label} was {reprlib.repr(was)}, now it is {reprlib.repr(now)}: what is there "
                "and what would be added must not mix; use another --work, or move the folder away"
            )


def innermost(label: str, was: Any, now: Any) -> tuple[str, Any, Any]:
    """Where two values part: of tables the first key that differs, since two long tables look the same in a line."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for name in (*now, *was):
            if was.get(name) != now.get(name):
                return innermost(f"{label}.{name}", was.get(name), now.get(name))
    return label, was, now


def missing(folder: Path, wanted: Iterable[Wanted]) -> list[Wanted]:
    """What of the wanted continuations is not there yet, each once."""
    path = folder / TEXTS_FILE
    have = {tuple(row[name] for name in KEY) for row in read_rows(path, KEY)} if path.is_file() else set()
    return list({each.key: each for each in wanted if each.key not in have}.values())


def write_texts(
    folder: Path, wanted: Iterable[Wanted], engine: Engine, identity: Identity, listen: Callable[[Text], None]
) -> None:
    """Let the engine write what is missing, and put each text on disk as it is done.

    A request that fails is a row with its error, and is not made again.
    """
    todo = missing(folder, wanted)
    waiting = {str(at): each for at, each in enumerate(todo)}
    requests = [
        Request(
            request_id=name,
            messages=each.messages,
            sampling=Sampling(
                temperature=each.temperature,
                top_p=identity.top_p,
                max_tokens=identity.max_tokens,
                seed=text_seed(identity.seed, each.key),
            ),
        )
        for name, each in waiting.items()
    ]
    with Ledger(folder / TEXTS_FILE, key=KEY) as ledger:
        begun = time.monotonic()
        for completion in engine.stream(requests):
            each = waiting[completion.request_id]
            now = time.monotonic()
            text = Text(
                key=each.key,
                prompt_ids=each.prompt_ids,
                response_ids=list(completion.token_ids),
                finished=completion.finish_reason == "stop",
                seconds=now - begun,
                error=completion.error,
            )
            begun = now
            named = dict(zip(KEY, text.key, strict=True))
            ledger.append(named | {name: getattr(text, name) for name in TEXT_FIELDS})
            listen(text)


TEXT_FIELDS = ("prompt_ids", "response_ids", "finished", "seconds", "error")


def read_texts(folder: Path, wanted: Iterable[Wanted]) -> list[Text]:
    """The wanted texts, in the order in which they are wanted.

    Raises ValueError where one is missing, or a row is not a text.
    """
    path = folder / TEXTS_FILE
    rows = {tuple(row[name] for name in KEY): row for row in read_rows(path, KEY)} if path.is_file() else {}
    return list(texts_of(rows, wanted, path))


def texts_of(rows: Mapping[TextKey, Mapping[str, Any]], wanted: Iterable[Wanted], path: Path) -> Iterator[Text]:
    """Rows as texts, each key once."""
    for key in dict.fromkeys(each.key for each in wanted):
        if key not in rows:
            raise ValueError(f"{path}: no text of prompt {key[0]} at temperature {key[1]:g}, sample {key[2]}")
        lacking = [name for name in TEXT_FIELDS if name not in rows[key]]
        if lacking:
            raise ValueError(f"{path}: the text of prompt {key[0]} has no {lacking[0]!r}")
        text = Text(key=key, **{name: rows[key][name] for name in TEXT_FIELDS})
        refuse_damaged(text, path)
        yield text


def refuse_damaged(text: Text, path: Path) -> None:
    """Raise ValueError for a text whose fields are not what was written: another prompt, or no tokens at all."""
    whole = isinstance(text.response_ids, list) and all(is_whole(each) and each >= 0 for each in text.response_ids)
    right = {
        "prompt_ids": isinstance(text.prompt_ids, list) and digest_of(text.prompt_ids) == text.key[0],
        "response_ids": whole,
        "seconds": isinstance(text.seconds, int | float),
        "error": text.error is None or isinstance(text.error, str),
    }
    for name, is_right in right.items():
        if not is_right:
            found = reprlib.repr(getattr(text, name))
            raise ValueError(f"{path}: the text of prompt {text.key[0]} is damaged: {name} = {found}")


def usable(texts: Sequence[Text], folder: Path) -> list[Text]:
    """Texts that a window can be cut from. Raises ValueError where there is none."""
    found = [text for text in texts if text.is_usable]
    if not found:
        errors = [text.error for text in texts if text.error]
        reason = f"; the first error: {errors[0]}" if errors else ""
        raise ValueError(
            f"{folder}: the corpus is empty: of {len(texts)} texts none has {SHORTEST_RESPONSE} tokens or more{reason}"
        )
    return found


def as_examples(texts: Iterable[Text]) -> list[Example]:
    """Texts as training examples."""
    return [Example(text.prompt_ids, text.response_ids) for text in texts]


def corpus_digest(texts: Iterable[Text]) -> str:
    """Names the texts: changes with any token of prompts and responses, not with their order."""
    return digest_of(sorted(digest_of([text.prompt_ids, text.response_ids]) for text in texts))
