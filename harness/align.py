"""An alignment from its plan to its drafters: corpus, laws, trainings; every part resumable.

Brings tasks and engines.alignment together. Texts are written only where one process runs; several, under torchrun,
train on a corpus that is complete.
"""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from engines.alignment import ranks
from engines.alignment.corpus import (
    IDENTITY_FILE,
    Text,
    Wanted,
    as_examples,
    claim,
    corpus_digest,
    read_texts,
    text_seed,
    usable,
    write_texts,
)
from engines.alignment.evaluation import Evaluation
from engines.alignment.examples import Example
from engines.alignment.scoring import open_scorer, read_laws, score_texts, unscored
from engines.alignment.stages import DrafterSetup, Listeners, Material, train_drafter
from engines.alignment.trainer import Progress
from engines.checkpoints import model_digest
from engines.compute import network_of
from engines.contract import Engine
from engines.forecast import RecordedText
from engines.sampling import Sampling
from harness import catalog
from harness.align_plan import CORPUS_FOLDER, HELDOUT_FOLDER, Plan, Work
from harness.align_prompts import REPORT_FILE, Checked
from results.costs import forward_flops
from results.ledger import write_rows


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


class Alignment:
    """One alignment in its work folder."""

    def __init__(self, plan: Plan, listener: AlignListener) -> None:
        self.plan, self.listener = plan, listener
        self.config, self.work, self.limits = plan.config, plan.work, plan.limits
        self.verifier, self.identity = plan.verifier, plan.identity

    def run(self) -> bool:
        """Do what is missing; True when all that was asked for is there. Raises as the plan does."""
        todo = self.plan.work_to_do()
        self.report(todo.checked)
        self.write(todo)
        written = read_texts(self.work / CORPUS_FOLDER, todo.wanted[CORPUS_FOLDER])
        texts = usable(written, self.work / CORPUS_FOLDER)
        if self.config.corpus.top_logs:
            self.score(texts)
        if self.limits.corpus_only:
            return True
        heldout = self.judged(todo.wanted[HELDOUT_FOLDER])
        return self.train(self.material(todo.checked, texts, len(written) - len(texts), heldout))

    def report(self, checked: Checked) -> None:
        """Write down which prompts overlap with evaluation problems. Raises ValueError where they must not."""
        path = self.work / REPORT_FILE
        if checked.report is not None:
            write_rows(path, [checked.report])
        if checked.refusal:
            raise ValueError(f"{self.config.path}: {checked.refusal}; all overlaps are in {path}")

    def write(self, todo: Work) -> None:
        """Let the verifier write what is missing in the folders; one engine for all."""
        left = sum(map(len, todo.missing.values()))
        if left and ranks.count() > 1:
            raise ValueError(f"{self.work}: {left} texts are missing; write them first: streak align --corpus-only")
        with ExitStack() as stack:
            # Open before anything is written: what is wrong with it leaves no folder behind.
            engine = stack.enter_context(closing(self.open_engine())) if left else None
            for name in todo.wanted:
                claim(self.work / name / IDENTITY_FILE, asdict(self.identity))
            if engine is None:
                return
            self.listener.begin("verifier's texts", left)
            for name, wanted in todo.missing.items():
                write_texts(self.work / name, wanted, engine, self.identity, lambda text: self.listener.text())

    def open_engine(self) -> Engine:
        """The verifier, to write texts."""
        verifier = self.config.verifier
        settings: dict[str, Any] = {
            "number_format": verifier.number_format,
            "threads": verifier.threads,
            "concurrency": verifier.concurrency,
            "max_context": verifier.max_context,
        }
        flags = {} if verifier.thinking is None else {"thinking": verifier.thinking}
        return catalog.build_engine(verifier.engine, str(self.verifier.folder), settings | flags)

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
        score_texts(folder, todo, open_scorer(self.verifier.folder), count=count, top_p=top_p, listen=listen)

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
            "data_flops": forwards * forward_flops(network_of(self.verifier.shape), rows),
        }
        return Material(verifier=self.verifier.folder, examples=examples, heldout=heldout, facts=facts)

    def train(self, material: Material) -> bool:
        """Train the drafters that were asked for, in the order of the file; False when the stage's seconds are over."""
        left = self.limits.stage_seconds
        self.refuse_stale(material)
        for setup in self.plan.asked:
            claim(self.plan.settings_file(setup), self.claims(setup, material))
            self.listener.begin(setup.name, setup.schedule.steps)
            spent = Spent(self.listener, setup.name)
            listeners = Listeners(step=spent.step, evaluation=spent.evaluation)
            if not train_drafter(setup, material, self.work, stage_seconds=left, listeners=listeners):
                return False
            left -= spent.seconds
        # A parent may have been trained anew, and a child of it be there from before.
        self.refuse_stale(material)
        return True

    def refuse_stale(self, material: Material) -> None:
        """Raise ValueError for a checkpoint that is there and was trained on other texts or from another parent."""
        for setup in self.plan.named:
            self.plan.refuse_checkpoints(setup, {"corpus_digest": material.facts["corpus_digest"]})

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
