"""The verifier's texts and laws: written once, resumed line by line, exact where all tokens are kept."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engines.alignment.corpus import (
    TEXTS_FILE,
    Identity,
    Text,
    Wanted,
    corpus_digest,
    missing,
    read_texts,
    text_seed,
    usable,
    write_texts,
)
from engines.alignment.scoring import LAWS_FILE, open_scorer, read_laws, score_texts, text_laws, unscored
from engines.contract import Request
from engines.decoder import causal_mask
from engines.reference import ReferenceEngine
from engines.sampling import Sampling
from results.ledger import read_rows, write_rows
from results.records import Completion
from tiny_models import TINY, write_model

IDENTITY = Identity(
    verifier_digest="0" * 12,
    vocab_size=TINY.vocab_size,
    chat_template="0" * 12,
    thinking=None,
    number_format="float32",
    top_p=1.0,
    max_tokens=12,
    seed=5,
)


class Counting:
    """An engine that counts what it is asked, and ends after `most` answers as a killed one would."""

    def __init__(self, engine: ReferenceEngine, most: int = 1000) -> None:
        self.engine, self.left, self.asked = engine, most, 0

    def stream(self, requests: Iterable[Request]) -> Iterator[Completion]:
        for completion in self.engine.stream(requests):
            if not self.left:
                raise KeyboardInterrupt
            self.left, self.asked = self.left - 1, self.asked + 1
            yield completion

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> ReferenceEngine:
    return ReferenceEngine(str(write_model(tmp_path_factory.mktemp("verifier"))), concurrency=2)


def wanted(engine: ReferenceEngine, *questions: str, samples: int = 1) -> list[Wanted]:
    chats = [[{"role": "user", "content": question}] for question in questions]
    return [
        Wanted(messages=chat, prompt_ids=engine.chat.prompt_ids(chat), temperature=temperature, sample=sample)
        for chat in chats
        for temperature in (0.0, 1.0)
        for sample in range(samples)
    ]


def write(folder: Path, asked: list[Wanted], engine: Any) -> None:
    write_texts(folder, asked, engine, IDENTITY, lambda text: None)


def test_texts_are_the_engines_own_under_a_seed_of_their_own(engine: ReferenceEngine, tmp_path: Path) -> None:
    asked = wanted(engine, "Mia has 42 coins.", samples=2)
    write(tmp_path, asked, engine)

    texts = read_texts(tmp_path, asked)

    for text, each in zip(texts, asked, strict=True):
        seed = text_seed(IDENTITY.seed, each.key)
        sampling = Sampling(temperature=each.temperature, max_tokens=12, seed=seed)
        alone = engine.complete(Request(request_id="r", messages=each.messages, sampling=sampling))
        assert tuple(text.response_ids) == alone.token_ids
    assert texts[2].response_ids != texts[3].response_ids


def test_an_interrupted_corpus_goes_on_where_it_was(engine: ReferenceEngine, tmp_path: Path) -> None:
    asked = wanted(engine, "Mia has 42 coins.", "She finds 17.", "Work.")
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "twice", asked, Counting(engine, most=2))
    assert len(missing(tmp_path / "twice", asked)) == len(asked) - 2
    rest = Counting(engine)
    write(tmp_path / "twice", asked, rest)
    write(tmp_path / "once", asked, engine)

    once, twice = (read_texts(tmp_path / name, asked) for name in ("once", "twice"))

    assert rest.asked == len(asked) - 2
    assert corpus_digest(twice) == corpus_digest(once)


def test_a_request_that_fails_is_a_row_and_is_not_made_again(engine: ReferenceEngine, tmp_path: Path) -> None:
    asked = wanted(engine, "Mia has 42 coins. " * 60)
    write(tmp_path, asked, engine)
    texts = read_texts(tmp_path, asked)

    with pytest.raises(ValueError, match=r"the corpus is empty: of 2 texts none .* the first error: the prompt has"):
        usable(texts, tmp_path)
    assert missing(tmp_path, asked) == []


def test_a_text_that_is_not_there_is_named(engine: ReferenceEngine, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{TEXTS_FILE}: no text of prompt .* at temperature 0, sample 0"):
        read_texts(tmp_path, wanted(engine, "Mia"))


@pytest.mark.parametrize(
    "damage",
    [
        {"prompt_ids": [5, 6]},
        {"prompt_ids": "abc"},
        {"response_ids": None},
        {"response_ids": "abc"},
        {"response_ids": [1.5, 2]},
        {"response_ids": [-1, 2]},
        {"seconds": "one"},
        {"error": 5},
    ],
)
def test_a_damaged_text_is_named(engine: ReferenceEngine, tmp_path: Path, damage: dict[str, object]) -> None:
    asked = wanted(engine, "Mia has 42 coins.")
    write(tmp_path, asked, engine)
    rows = list(read_rows(tmp_path / TEXTS_FILE))
    write_rows(tmp_path / TEXTS_FILE, [row | damage for row in rows])

    with pytest.raises(ValueError, match=f"{TEXTS_FILE}: the text of prompt .* is damaged: {next(iter(damage))} = "):
        read_texts(tmp_path, asked)


def test_the_digest_of_a_corpus_knows_its_tokens_and_not_their_order(engine: ReferenceEngine, tmp_path: Path) -> None:
    asked = wanted(engine, "Mia has 42 coins.", "Work.")
    write(tmp_path, asked, engine)
    texts = read_texts(tmp_path, asked)

    assert corpus_digest(texts[::-1]) == corpus_digest(texts)
    assert corpus_digest(texts[1:]) != corpus_digest(texts)


def exact_law(engine: ReferenceEngine, text: Text) -> torch.Tensor:
    ids = torch.tensor([text.prompt_ids + text.response_ids])
    with torch.inference_mode():
        hidden = engine.decoding.target(ids, torch.arange(ids.shape[1]), causal_mask(ids.shape[1]))
        scores = engine.decoding.target.logits(hidden[0, len(text.prompt_ids) - 1 : -1])
    return torch.log_softmax(scores / (text.temperature or 1.0), dim=-1)


def test_laws_are_the_verifiers_most_likely_tokens_at_every_place(engine: ReferenceEngine, tmp_path: Path) -> None:
    asked = wanted(engine, "Mia has 42 coins.")
    write(tmp_path, asked, engine)
    texts = read_texts(tmp_path, asked)
    todo = unscored(tmp_path, texts, 5)
    score_texts(tmp_path, todo, open_scorer(engine.folder), count=5, top_p=1.0, listen=lambda: None)

    examples, left_over = read_laws(tmp_path, texts, 5)

    masses = []
    for example, text in zip(examples, texts, strict=True):
        assert example.laws is not None
        best = exact_law(engine, text).topk(5, dim=-1)
        assert torch.allclose(example.laws.logs, best.values, atol=1e-4)
        assert (example.laws.tokens == best.indices).float().mean() > 0.95  # equal logs may change places
        masses.append(1 - best.values.exp().sum(dim=-1))
    assert left_over == pytest.approx(float(torch.cat(masses).mean()), abs=1e-5)
    assert left_over > 0.001
    assert todo == texts
    assert unscored(tmp_path, texts, 5) == []
    assert unscored(tmp_path, texts, 6) == texts


def test_all_tokens_kept_leave_nothing_over(engine: ReferenceEngine, tmp_path: Path) -> None:
    asked = wanted(engine, "Work.")
    write(tmp_path, asked, engine)
    (text, _) = read_texts(tmp_path, asked)

    laws = text_laws(engine.decoding.target, text, 10_000, 1.0)

    assert laws.tokens.shape == (len(text.response_ids), TINY.vocab_size)
    assert torch.allclose(laws.logs.exp().sum(dim=-1), torch.ones(len(text.response_ids)), atol=1e-5)


def test_laws_that_are_not_there_are_named(engine: ReferenceEngine, tmp_path: Path) -> None:
    asked = wanted(engine, "Work.")
    write(tmp_path, asked, engine)

    with pytest.raises(ValueError, match=r"laws.jsonl: no laws with top_logs = 7 of prompt"):
        read_laws(tmp_path, read_texts(tmp_path, asked), 7)


@pytest.mark.parametrize("damage", ["kept", "logs", "left_over"])
def test_damaged_laws_are_named(engine: ReferenceEngine, tmp_path: Path, damage: str) -> None:
    asked = wanted(engine, "Work.")
    write(tmp_path, asked, engine)
    texts = read_texts(tmp_path, asked)
    score_texts(tmp_path, texts, open_scorer(engine.folder), count=5, top_p=1.0, listen=lambda: None)
    rows = list(read_rows(tmp_path / LAWS_FILE))
    write_rows(tmp_path / LAWS_FILE, [row | {damage: "A"} for row in rows])

    with pytest.raises(ValueError, match=r"laws.jsonl: the laws of prompt .* are damaged"):
        read_laws(tmp_path, texts, 5)
