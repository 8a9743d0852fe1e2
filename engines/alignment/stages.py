"""One drafter from its parent to its checkpoints: opens, trains, evaluates and publishes; a killed run goes on.

Takes texts as token ids and knows no task. In the work folder a drafter NAME has `NAME-training/` (state, a line a step
in losses.jsonl, a line an evaluation in evaluations.jsonl), and its checkpoints `NAME-000100/` where `keep_at` names
step 100, and `NAME/` at the end.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from engines.alignment import ranks
from engines.alignment.adapters import adapter_parameters, add_adapters, merged
from engines.alignment.batches import rollout_batch
from engines.alignment.evaluation import Evaluation, evaluate
from engines.alignment.examples import Example, trimmed
from engines.alignment.losses import Plan, WindowLoss
from engines.alignment.publish import Start, open_parent, publish
from engines.alignment.schedule import Schedule
from engines.alignment.trainer import Progress, train
from engines.checkpoints import CONFIG_FILE, model_digest
from engines.compute import network_of
from engines.decoder import Decoder
from engines.forecast import RecordedText
from results.alignment import AlignmentRecord, read_alignment, worst
from results.costs import forward_flops, training_flops
from results.ledger import Ledger

LOSSES_FILE, EVALUATIONS_FILE = "losses.jsonl", "evaluations.jsonl"
STEP_KEY = ("step",)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DrafterSetup:
    """How one drafter is trained. `objective_text` names the objective in its records.

    layers:         of the parent that are kept, by number from 0; None for all
    keep_at:        steps at which a checkpoint is kept beside the last one
    evaluate_every: steps; 0 for never
    context:        longest text, prompt included; None for what the parent takes
    """

    name: str
    objective_text: str
    plan: Plan
    schedule: Schedule
    parent: Path
    parent_name: str
    layers: tuple[int, ...] | None
    mask_token_id: int | None
    batch_tokens: int
    keep_at: tuple[int, ...]
    save_every: int
    evaluate_every: int
    context: int | None
    lora_rank: int
    lora_alpha: int
    device: str
    settings: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What all drafters of a run have in common: verifier, texts, held-out texts, and the records' common fields."""

    verifier: Path
    examples: Sequence[Example]
    heldout: Sequence[RecordedText]
    facts: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Who is told: of every step with the batch's mean expected streak, and of every evaluation."""

    step: Callable[[Progress, float], None] = lambda progress, streak: None
    evaluation: Callable[[Evaluation], None] = lambda evaluation: None


def is_done(work: Path, setup: DrafterSetup) -> bool:
    """Whether all checkpoints of a drafter are there."""
    return all((folder / CONFIG_FILE).is_file() for folder in checkpoints_of(work, setup))


def checkpoints_of(work: Path, setup: DrafterSetup) -> list[Path]:
    """Where a drafter's checkpoints lie, the last one last."""
    return [*(work / f"{setup.name}-{step:06d}" for step in setup.keep_at), work / setup.name]


def train_drafter(
    setup: DrafterSetup, material: Material, work: Path, *, stage_seconds: float, listeners: Listeners
) -> bool:
    """Train until the schedule is done or the stage's seconds are spent; True when all checkpoints are there."""
    if is_done(work, setup):
        return True
    ranks.refuse_unsharded(setup.schedule.optimizer)
    start = open_parent(
        setup.parent,
        material.verifier,
        layers=setup.layers,
        mask_token_id=setup.mask_token_id,
        window=setup.plan.window,
    )
    training = Training(setup, material, work, start, listeners)
    try:
        return training.run(stage_seconds)
    finally:
        training.close()


class Training:
    """A drafter in training, with its ledgers open on the first rank."""

    def __init__(self, setup: DrafterSetup, material: Material, work: Path, start: Start, listeners: Listeners) -> None:
        self.setup, self.material, self.work, self.listeners = setup, material, work, listeners
        self.drafter = start.drafter
        self.folder = work / f"{setup.name}-training"
        self.network = network_of(start.decoder.config)
        decoder = start.decoder
        if setup.lora_rank:
            self.add_adapters(decoder)
        self.adapters = adapter_parameters(decoder) if setup.lora_rank else None
        self.decoder = ranks.shard(decoder.to(setup.device))
        room = start.decoder.config.max_position_embeddings
        refuse_long(material.heldout, room, setup.parent)
        context = min(setup.context or math.inf, room)
        pieces = [piece for example in material.examples for piece in trimmed(example, int(context))]
        self.examples = sorted(pieces, key=len)
        self.loss = WindowLoss(
            decoder=self.decoder,
            drafter=start.drafter,
            plan=setup.plan,
            batch_at=self.batch,
            accumulate=setup.schedule.accumulate * ranks.count(),
        )
        first = ranks.rank() == 0
        self.losses = Ledger(self.folder / LOSSES_FILE, key=STEP_KEY) if first else None
        self.evaluations = Ledger(self.folder / EVALUATIONS_FILE, key=STEP_KEY) if first else None

    def batch(self, index: int) -> Sequence[Example]:
        """The texts of a batch."""
        return rollout_batch(self.examples, index, self.setup.plan.seed, self.setup.batch_tokens)

    def run(self, stage_seconds: float) -> bool:
        """Train; the last checkpoint is written when the schedule is done.

        Raises ValueError where a checkpoint of a training that is over was taken away.
        """
        done = train(
            self.decoder,
            self.loss,
            self.setup.schedule,
            self.folder,
            stage_seconds=stage_seconds,
            save_every=self.setup.save_every,
            listen=self.after_step,
            counters=self.loss.spent,
            name_batch=self.loss.batch_digest,
        )
        gone = [folder for folder in checkpoints_of(self.work, self.setup) if not (folder / CONFIG_FILE).is_file()]
        if done and gone:
            raise ValueError(f"{gone[0]}: missing, though its training is over; remove {self.folder} to train anew")
        return done

    def after_step(self, progress: Progress) -> None:
        """Ledger, evaluation and checkpoints of a step."""
        if self.losses is not None:
            self.losses.append({"step": progress.step, "loss": progress.loss, "streak": self.loss.streak})
        self.listeners.step(progress, self.loss.streak)
        last, every = progress.step == progress.steps, self.setup.evaluate_every
        if every and (last or progress.step % every == 0) and self.material.heldout:
            self.evaluate(progress.step)
        if progress.step in self.setup.keep_at:
            self.publish(progress, self.work / f"{self.setup.name}-{progress.step:06d}")
        if last:
            self.publish(progress, self.work / self.setup.name)

    def evaluate(self, step: int) -> None:
        """Play the held-out texts with the drafter as it is, on the first rank."""
        decoder = self.whole_decoder()
        if self.evaluations is not None:
            found = evaluate(decoder, self.drafter, self.setup.plan, self.material.heldout, step)
            self.evaluations.append(found.to_json())
            self.listeners.evaluation(found)
        ranks.wait()

    def whole_decoder(self) -> Decoder:
        """The decoder on the CPU, adapters merged, gathered from all ranks; the one in training where that is it."""
        plain = not self.setup.lora_rank and ranks.count() == 1
        if plain and self.setup.device == "cpu":
            return self.decoder
        if ranks.count() == 1:
            return (merged(self.decoder) if self.setup.lora_rank else self.decoder_copy()).to("cpu")
        weights, _ = ranks.whole(self.decoder, [])
        decoder = Decoder(self.decoder.config)
        if self.setup.lora_rank:
            self.add_adapters(decoder)
        if ranks.rank() == 0:
            decoder.load_state_dict(weights)
        return merged(decoder) if self.setup.lora_rank else decoder

    def add_adapters(self, decoder: Decoder) -> None:
        """Freeze the weights and put the adapters that are trained beside them."""
        add_adapters(decoder, self.setup.lora_rank, alpha=self.setup.lora_alpha, seed=self.setup.plan.seed)

    def decoder_copy(self) -> Decoder:
        """A copy on the CPU of a decoder on a GPU."""
        decoder = Decoder(self.decoder.config)
        decoder.load_state_dict({name: weight.cpu() for name, weight in self.decoder.state_dict().items()})
        return decoder

    def publish(self, progress: Progress, folder: Path) -> None:
        """Write a checkpoint, unless it is there."""
        decoder, record = self.whole_decoder(), self.record(progress, folder.name)
        if ranks.rank() == 0 and not (folder / CONFIG_FILE).is_file():
            publish(decoder, self.drafter, self.material.verifier, record, folder)
        ranks.wait()

    def record(self, progress: Progress, name: str) -> AlignmentRecord:
        """The compute ledger as it stands after a step."""
        spent = {key: round(ranks.total(value)) for key, value in self.loss.spent.state_dict().items()}
        flops = training_flops(self.network, spent["trained_rows"], adapter_parameters=self.adapters)
        before = read_alignment(self.setup.parent)
        facts = dict(self.material.facts)
        if before:
            facts["contamination"] = worst(facts["contamination"], before.contamination)
        gpus = ranks.count() if self.setup.device != "cpu" else 0
        return AlignmentRecord(
            name=name,
            objective=self.setup.objective_text,
            step=progress.step,
            steps=progress.steps,
            parent=self.setup.parent_name,
            parent_digest=model_digest(self.setup.parent),
            parent_flops=before.training_flops + before.parent_flops if before else 0,
            parent_seconds=before.training_seconds + before.parent_seconds if before else 0.0,
            training_windows=spent["windows"],
            training_tokens=spent["tokens"],
            training_rows=spent["trained_rows"],
            training_forward_rows=spent["probed_rows"],
            training_seconds=progress.seconds,
            training_flops=flops + forward_flops(self.network, spent["probed_rows"]),
            gpu_seconds=gpus * progress.seconds,
            settings=self.setup.settings,
            **facts,
        )

    def close(self) -> None:
        """Let go of the ledgers."""
        for ledger in (self.losses, self.evaluations):
            if ledger is not None:
                ledger.close()


def refuse_long(texts: Sequence[RecordedText], room: int, parent: Path) -> None:
    """Raise ValueError for a held-out text that the drafter cannot take: it is judged on all of them or not at all."""
    longest = max((len(text.prompt_ids) + len(text.response_ids) for text in texts), default=0)
    if longest > room:
        raise ValueError(
            f"{parent}: its context of {room} tokens is shorter than a held-out text of {longest}; lower max_tokens in "
            "[corpus], or choose shorter [heldout] prompts"
        )


def training_device(name: str) -> str:
    """`auto` is the GPU where there is one. Raises ValueError for a GPU that is not there."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device = 'cuda' is not allowed: torch sees no GPU; allowed here: auto, cpu")
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name
