"""What an alignment will do, before it does anything: its file against models, prompts and what is there already.

Opens no weights and writes nothing, so that whatever is wrong is said before hours are spent.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engines.alignment.corpus import IDENTITY_FILE, Identity, Wanted, missing, refuse_other
from engines.alignment.stages import DrafterSetup, checkpoints_of, is_done
from engines.checkpoints import CONFIG_FILE, model_digest
from harness.align_checks import (
    check_corpus,
    check_drafters,
    check_engine,
    check_prompts_fit,
    check_texts_fit,
    open_verifier,
    refuse_many,
)
from harness.align_prompts import Checked, Prompt, check_prompts, load_prompts
from harness.align_settings import AlignConfig
from harness.align_setups import drafter_setup
from results.alignment import RECORD_FILE, read_alignment, worst

CORPUS_FOLDER, HELDOUT_FOLDER, SETTINGS_FILE = "corpus", "heldout", "settings.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What of an alignment is to be done now."""

    stage_seconds: float = math.inf
    only: tuple[str, ...] = ()
    corpus_only: bool = False
    allow_contaminated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What there is to do: checked prompts, and by folder the texts that are wanted, and those not there yet."""

    checked: Checked
    wanted: dict[str, list[Wanted]]
    missing: dict[str, list[Wanted]]


class Plan:
    """An alignment's drafters, verifier and work folder.

    Raises ValueError or OSError, one line that names file and table, for what cannot be.
    """

    def __init__(self, config: AlignConfig, work: Path, limits: Limits) -> None:
        self.config, self.work, self.limits = config, work, limits
        self.verifier = open_verifier(config)
        chat = self.verifier.chat
        pad_id = chat.tokenizer.pad_token_id or 0
        self.setups = [drafter_setup(config, drafter, work, pad_id) for drafter in config.drafters]
        unknown = set(limits.only) - {setup.name for setup in self.setups}
        if unknown:
            named = ", ".join(setup.name for setup in self.setups)
            raise ValueError(f"--only = {min(unknown)!r} is not allowed; allowed: {named}")
        self.outlines = check_drafters(config, self.setups, self.verifier)
        check_corpus(config, self.verifier, self.setups)
        corpus = config.corpus
        self.identity = Identity(
            verifier_digest=model_digest(self.verifier.folder),
            vocab_size=self.verifier.shape.vocab_size,
            chat_template=chat.template_digest,
            thinking=config.verifier.thinking,
            number_format=config.verifier.number_format,
            top_p=corpus.top_p,
            max_tokens=corpus.max_tokens,
            seed=corpus.seed,
        )

    @property
    def named(self) -> list[DrafterSetup]:
        """The drafters that were asked for."""
        return [setup for setup in self.setups if not self.limits.only or setup.name in self.limits.only]

    @property
    def asked(self) -> list[DrafterSetup]:
        """Those of them that are to be trained now, which leaves out what is done."""
        return [setup for setup in self.named if not is_done(self.work, setup)]

    def work_to_do(self) -> Work:
        """What there is to do, held against models, prompts and what is there; loads problems, writes nothing."""
        prompts = load_prompts(self.config.prompts)
        heldout = load_prompts(self.config.heldout) if self.config.heldout else []
        refuse_many(self.config, len(prompts) + len(heldout))
        checked = check_prompts(self.config, prompts, allow=self.limits.allow_contaminated)
        wanted, judged = self.wanted(checked.prompts), self.wanted(heldout)
        check_prompts_fit(self.config, self.verifier, wanted, judged)
        check_texts_fit(self.config, self.verifier, self.setups, self.outlines, (wanted, judged))
        folders = {CORPUS_FOLDER: wanted, HELDOUT_FOLDER: judged}
        for name in folders:
            refuse_other(self.work / name / IDENTITY_FILE, asdict(self.identity))
        todo = Work(
            checked=checked,
            wanted=folders,
            missing={name: missing(self.work / name, own) for name, own in folders.items()},
        )
        if any(todo.missing.values()):
            check_engine(self.config, self.verifier)
        if not checked.refusal:
            self.refuse_trainings(checked)
        return todo

    def refuse_trainings(self, checked: Checked) -> None:
        """Raise ValueError for a training that is begun under other settings, or whose parent nobody will train."""
        if self.limits.corpus_only:
            return
        trained = {setup.name for setup in self.asked}
        facts = {"verifier_digest": self.identity.verifier_digest, "contamination": checked.verdict}
        for setup in self.named:
            self.refuse_checkpoints(setup, {"settings": dict(setup.settings)} | facts)
        for setup in self.asked:
            refuse_other(self.settings_file(setup), {"settings": dict(setup.settings)} | facts)
            if setup.parent_name in self.outlines and setup.parent_name not in trained and not setup.parent.is_dir():
                raise ValueError(
                    f"--only: the parent of {setup.name!r} is {setup.parent_name!r}, which is not trained; "
                    f"add --only {setup.parent_name}"
                )

    def refuse_checkpoints(self, setup: DrafterSetup, own: Mapping[str, Any]) -> None:
        """Raise ValueError for a checkpoint that is there and was trained under other settings, texts or parents.

        Nothing is trained where it is there, so that it would pass for what the file asks for now.
        """
        there = [folder for folder in checkpoints_of(self.work, setup) if (folder / CONFIG_FILE).is_file()]
        if not there:
            return
        facts, before = dict(own), read_alignment(setup.parent)
        if before and "contamination" in own:
            facts["contamination"] = worst(own["contamination"], before.contamination)
        if setup.parent.is_dir():
            facts["parent_digest"] = model_digest(setup.parent)
        for folder in there:
            if read_alignment(folder) is None:
                raise ValueError(f"{folder}: no {RECORD_FILE}, so nothing says how this checkpoint was trained")
            refuse_other(folder / RECORD_FILE, facts)

    def settings_file(self, setup: DrafterSetup) -> Path:
        """Where a training keeps what it depends on."""
        return self.work / f"{setup.name}-training" / SETTINGS_FILE

    def wanted(self, prompts: Sequence[Prompt]) -> list[Wanted]:
        """The continuations of prompts that [corpus] asks for, sorted by length for the engine's lanes."""
        ids = [(prompt, self.verifier.chat.prompt_ids(prompt.messages)) for prompt in prompts]
        return [
            Wanted(messages=prompt.messages, prompt_ids=own, temperature=temperature, sample=sample)
            for temperature in self.config.corpus.temperatures
            for prompt, own in sorted(ids, key=lambda each: len(each[1]))
            # At temperature 0 another sample would be the same text.
            for sample in range(self.config.corpus.per_prompt if temperature else 1)
        ]
