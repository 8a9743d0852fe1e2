"""An alignment from its file to its drafters: prompts, decontamination, corpus, laws, trainings; every part resumable.

Brings tasks and engines.alignment together. Under torchrun the first rank alone checks prompts and writes texts, and
only where one process runs; several train on a corpus that is complete.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from engines.alignment import ranks
from engines.alignment.corpus import (
    IDENTITY_FILE,
    Identity,
    Text,
    Wanted,
    as_examples,
    claim,
    corpus_digest,
    missing,
    read_texts,
    text_seed,
    usable,
    write_texts,
)
from engines.alignment.evaluation import Evaluation
from engines.alignment.examples import Example
from engines.alignment.scoring import open_scorer, read_laws, score_texts, unscored
from engines.alignment.stages import DrafterSetup, Listeners, Material, is_done, train_drafter
from engines.alignment.trainer import Progress
from engines.chat import ChatTokenizer
from engines.checkpoints import model_digest, read_config
from engines.compute import network_of
from engines.contract import Engine
from engines.forecast import RecordedText
from engines.models import resolve_model
from engines.sampling import Sampling
from harness import catalog
from harness.align_prompts import Checked, Prompt, check_prompts, load_prompts
from harness.align_settings import AlignConfig
from harness.align_setups import drafter_setup
from results.costs import forward_flops

CORPUS_FOLDER, HELDOUT_FOLDER, SETTINGS_FILE = "corpus", "heldout", "settings.json"

OpenVerifier = Callable[[], Engine]


class AlignListener(Protocol):
    """Who is told how an alignment goes."""

    def begin(self, what: str, total: int) -> None:
        """A part of the work begins: `total` texts to write or score, or steps to make."""
        ...

    def text(self) -> None:
        """A text was written or scored."""
        ...

    def step(self, progress: Progress, streak: float) -> None:
        """A step was made."""
        ...

    def evaluation(self, name: str, found: Evaluation) -> None:
        """A drafter was judged on held-out texts."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What of an alignment is to be done now."""

    stage_seconds: float = math.inf
    only: tuple[str, ...] = ()
    corpus_only: bool = False
    allow_contaminated: bool = False


class Alignment:
    """One alignment in its work folder."""

    def __init__(self, config: AlignConfig, work: Path, limits: Limits, listener: AlignListener) -> None:
        self.config, self.work, self.limits, self.listener = config, work, limits, listener
        self.verifier = resolve_model(config.located(config.verifier.path))
        self.shape, _ = read_config(self.verifier)
        self.chat = ChatTokenizer(self.verifier, thinking=config.verifier.thinking)
        pad_id = self.chat.tokenizer.pad_token_id or 0
        self.setups = [drafter_setup(config, drafter, work, pad_id) for drafter in config.drafters]
        unknown = set(limits.only) - {setup.name for setup in self.setups}
        if unknown:
            named = ", ".join(setup.name for setup in self.setups)
            raise ValueError(f"--only = {min(unknown)!r} is not allowed; allowed: {named}")
        corpus = config.corpus
        self.identity = Identity(
            verifier_digest=model_digest(self.verifier),
            vocab_size=self.shape.vocab_size,
            chat_template=self.chat.template_digest,
            thinking=config.verifier.thinking,
            number_format=config.verifier.number_format,
            top_p=corpus.top_p,
            max_tokens=corpus.max_tokens,
            seed=corpus.seed,
        )
        if self.needs_target and not corpus.top_logs:
            raise ValueError(f"{config.path}: top_logs = 0 in [corpus], but an objective compares with target laws")

    @property
    def needs_target(self) -> bool:
        """Whether some drafter's objective compares with the verifier's laws."""
        return any(setup.plan.objective.needs_target for setup in self.setups)

    def run(self) -> bool:
        """Do what is missing; True when all that was asked for is there."""
        checked = self.check()
        wanted = self.wanted(checked.prompts)
        heldout = self.wanted(load_prompts(self.config.heldout)) if self.config.heldout else []
        self.write({CORPUS_FOLDER: wanted, HELDOUT_FOLDER: heldout})
        written = read_texts(self.work / CORPUS_FOLDER, wanted)
        texts = usable(written, self.work / CORPUS_FOLDER)
        if self.config.corpus.top_logs:
            self.score(texts)
        if self.limits.corpus_only:
            return True
        return self.train(self.material(checked, texts, len(written) - len(texts), self.judged(heldout)))

    def check(self) -> Checked:
        """The prompts to train on, compared with the evaluation problems."""
        prompts = load_prompts(self.config.prompts)
        self.work.mkdir(parents=True, exist_ok=True)
        return check_prompts(self.config, prompts, allow=self.limits.allow_contaminated, folder=self.work)

    def wanted(self, prompts: Sequence[Prompt]) -> list[Wanted]:
        """The continuations of prompts that [corpus] asks for, sorted by length for the engine's lanes."""
        ids = [(prompt, self.chat.prompt_ids(prompt.messages)) for prompt in prompts]
        return [
            Wanted(messages=prompt.messages, prompt_ids=own, temperature=temperature, sample=sample)
            for temperature in self.config.corpus.temperatures
            for prompt, own in sorted(ids, key=lambda each: len(each[1]))
            # At temperature 0 another sample would be the same text.
            for sample in range(self.config.corpus.per_prompt if temperature else 1)
        ]

    def write(self, folders: dict[str, list[Wanted]]) -> None:
        """Let the verifier write what is missing in the folders; one engine for all."""
        todo = {name: missing(self.work / name, wanted) for name, wanted in folders.items()}
        for name in folders:
            claim(self.work / name / IDENTITY_FILE, asdict(self.identity))
        left = sum(map(len, todo.values()))
        if not left:
            return
        if ranks.count() > 1:
            raise ValueError(f"{self.work}: {left} texts are missing; write them first: streak align --corpus-only")
        verifier = self.config.verifier
        settings: dict[str, Any] = {
            "number_format": verifier.number_format,
            "threads": verifier.threads,
            "concurrency": verifier.concurrency,
            "max_context": verifier.max_context,
        }
        flags = {} if verifier.thinking is None else {"thinking": verifier.thinking}
        engine = catalog.build_engine(verifier.engine, str(self.verifier), settings | flags)
        self.listener.begin("verifier's texts", left)
        try:
            for name, wanted in folders.items():
                write_texts(self.work / name, wanted, engine, self.identity, lambda text: self.listener.text())
        finally:
            engine.close()

    def score(self, texts: Sequence[Text]) -> None:
        """Compute the verifier's laws of the texts where they are missing."""
        folder, count = self.work / CORPUS_FOLDER, self.config.corpus.top_logs
        todo = unscored(folder, texts, count)
        if not todo:
            return
        if ranks.count() > 1:
            raise ValueError(f"{folder}: {len(todo)} texts have no laws; score them first: streak align --corpus-only")
        self.listener.begin("verifier's laws", len(todo))
        top_p, listen = self.config.corpus.top_p, self.listener.text
        score_texts(folder, todo, open_scorer(self.verifier), count=count, top_p=top_p, listen=listen)

    def judged(self, heldout: Sequence[Wanted]) -> list[RecordedText]:
        """The held-out texts. Raises ValueError for one that failed: a drafter is judged on all of them."""
        texts = read_texts(self.work / HELDOUT_FOLDER, heldout)
        for text in texts:
            if text.error:
                raise ValueError(f"{self.config.path}: a prompt of [heldout] cannot be continued: {text.error}")
        return [self.recorded(text) for text in texts]

    def recorded(self, text: Text) -> RecordedText:
        """A held-out text, to be played."""
        sampling = Sampling(
            temperature=text.temperature,
            top_p=self.identity.top_p,
            max_tokens=self.identity.max_tokens,
            seed=text_seed(self.identity.seed, text.key),
        )
        return RecordedText(prompt_ids=text.prompt_ids, response_ids=text.response_ids, sampling=sampling)

    def material(
        self, checked: Checked, texts: Sequence[Text], left_out: int, heldout: Sequence[RecordedText]
    ) -> Material:
        """Texts, and what all records of this alignment say of them."""
        top_logs = self.config.corpus.top_logs
        examples: list[Example] = as_examples(texts)
        left_over = 0.0
        if top_logs:
            examples, left_over = read_laws(self.work / CORPUS_FOLDER, texts, top_logs)
        rows = sum(map(len, examples))
        forwards = 2 if top_logs else 1
        facts = {
            "verifier_digest": self.identity.verifier_digest,
            "chat_template": self.identity.chat_template,
            "thinking": self.identity.thinking,
            "corpus_digest": corpus_digest(texts),
            "top_logs": top_logs,
            "left_over": left_over,
            "contamination": checked.verdict,
            "overlapping": checked.overlapping,
            "dropped": checked.dropped,
            "data_texts": len(texts),
            "data_left_out": left_out,
            "data_tokens": sum(len(text.response_ids) for text in texts),
            "data_seconds": sum(text.seconds for text in texts),
            "data_flops": forwards * forward_flops(network_of(self.shape), rows),
        }
        return Material(verifier=self.verifier, examples=examples, heldout=heldout, facts=facts)

    def train(self, material: Material) -> bool:
        """Train the drafters that were asked for, in the order of the file; False when the stage's seconds are over."""
        left = self.limits.stage_seconds
        for setup in self.setups:
            if (self.limits.only and setup.name not in self.limits.only) or is_done(self.work, setup):
                continue
            claim(self.work / f"{setup.name}-training" / SETTINGS_FILE, self.claims(setup, material))
            self.listener.begin(setup.name, setup.schedule.steps)
            spent = Spent(self.listener, setup.name)
            listeners = Listeners(step=spent.step, evaluation=spent.evaluation)
            if not train_drafter(setup, material, self.work, stage_seconds=left, listeners=listeners):
                return False
            left -= spent.seconds
        return True

    def claims(self, setup: DrafterSetup, material: Material) -> dict[str, Any]:
        """What a training depends on: it is not gone on with under other settings, texts or parents."""
        return {
            "settings": dict(setup.settings),
            "parent_digest": model_digest(setup.parent),
            **{name: material.facts[name] for name in ("verifier_digest", "corpus_digest", "contamination")},
        }


@dataclass(slots=True)
class Spent:
    """Passes on what a training tells, and remembers its seconds."""

    listener: AlignListener
    name: str
    seconds: float = 0.0
    before: float | None = None

    def step(self, progress: Progress, streak: float) -> None:
        """A step was made."""
        self.before = progress.seconds if self.before is None else self.before
        self.seconds = progress.seconds - self.before
        self.listener.step(progress, streak)

    def evaluation(self, found: Evaluation) -> None:
        """A drafter was judged."""
        self.listener.evaluation(self.name, found)
