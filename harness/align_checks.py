"""What of an alignment can be known to be wrong before any work: its file against models' configurations and prompts.

Opens no weights and writes nothing. What the file alone can say is harness/align_config.py's. Every refusal is a
ValueError or OSError of one line that names the file and the table.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engines.alignment import ranks
from engines.alignment.adapters import refuse_rank
from engines.alignment.corpus import SHORTEST_RESPONSE, Wanted
from engines.alignment.losses import refuse_large_batch
from engines.alignment.publish import Outline, child_of, outline_of
from engines.alignment.stages import DrafterSetup
from engines.cache import DecoderConfig, refuse_large_cache
from engines.chat import ChatTokenizer
from engines.checkpoints import read_config, refuse_unwritable
from engines.models import resolve_model
from engines.serving.presence import missing_server
from harness import catalog
from harness.align_settings import AlignConfig
from results.alignment import read_alignment

MOST_TEXTS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """The model that writes the texts, by its configuration and tokenizer; room: tokens of a prompt and its answer."""

    folder: Path
    shape: DecoderConfig
    chat: ChatTokenizer
    room: int


def open_verifier(config: AlignConfig) -> Verifier:
    """The verifier's configuration and tokenizer."""
    with named(config, "verifier"):
        folder = resolve_model(config.located(config.verifier.path))
        shape, _ = read_config(folder)
        chat = ChatTokenizer(folder, thinking=config.verifier.thinking)
    room = min(shape.max_position_embeddings, config.verifier.max_context or shape.max_position_embeddings)
    return Verifier(folder=folder, shape=shape, chat=chat, room=room)


@contextmanager
def named(config: AlignConfig, table: str) -> Iterator[None]:
    """Puts file and table before what is refused inside."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ValueError(f"{config.path}: [{table}]: {error}") from error


def check_drafters(config: AlignConfig, setups: Sequence[DrafterSetup], verifier: Verifier) -> dict[str, Outline]:
    """What each drafter will be, a parent in the file standing for itself before it is trained."""
    found: dict[str, Outline] = {}
    for setup in setups:
        with named(config, f"drafter.{setup.name}"):
            inside = setup.parent_name in found
            if not inside:
                # Its own record is needed at the first checkpoint, hours from here.
                read_alignment(setup.parent)
            parent = found[setup.parent_name] if inside else outline_of(setup.parent, verifier.folder)
            shape, drafter = child_of(
                parent,
                verifier.chat,
                named=setup.parent_name if inside else str(setup.parent),
                layers=setup.layers,
                mask_token_id=setup.mask_token_id,
                window=setup.plan.window,
            )
            refuse_training(setup, shape)
            found[setup.name] = Outline(shape=shape, drafter=drafter)
    return found


def refuse_training(setup: DrafterSetup, shape: DecoderConfig) -> None:
    """Raise ValueError for settings that a drafter of this shape cannot be trained with here."""
    ranks.refuse_unsharded(setup.schedule.optimizer)
    refuse_unwritable(shape)
    if setup.lora_rank:
        refuse_rank(setup.lora_rank, shape)
    if setup.context and setup.context > shape.max_position_embeddings:
        allowed = f"at most {shape.max_position_embeddings}, as the parent's context"
        raise ValueError(f"context = {setup.context} is not allowed; allowed: {allowed}")


def check_corpus(config: AlignConfig, verifier: Verifier, setups: Sequence[DrafterSetup]) -> None:
    """Raise ValueError for a [corpus] that the verifier cannot write, or that lacks what an objective needs."""
    vocab_size = verifier.shape.vocab_size
    with named(config, "corpus"):
        if config.corpus.top_logs > vocab_size:
            allowed = f"at most {vocab_size}, the verifier's vocabulary"
            raise ValueError(f"top_logs = {config.corpus.top_logs} is not allowed; allowed: {allowed}")
        needy = next((setup.name for setup in setups if setup.plan.objective.needs_target), None)
        if needy and not config.corpus.top_logs:
            raise ValueError(f"top_logs = 0, but an objective compares with target laws, that of [drafter.{needy}]")


def refuse_many(config: AlignConfig, prompts: int) -> None:
    """Raise ValueError for more texts than anybody will wait for."""
    texts = prompts * sum(config.corpus.per_prompt if temperature else 1 for temperature in config.corpus.temperatures)
    if texts > MOST_TEXTS:
        raise ValueError(f"{config.path}: [corpus] asks for {texts} texts; allowed: at most {MOST_TEXTS}")


def check_engine(config: AlignConfig, verifier: Verifier) -> None:
    """Raise ValueError where the engine that is to write texts cannot do so here."""
    with named(config, "verifier"):
        if catalog.ENGINES[config.verifier.engine].served:
            missing = missing_server()
            if missing:
                raise ValueError(f"engine {config.verifier.engine!r}: {missing}")
        else:
            refuse_large_cache(verifier.shape, config.verifier.concurrency, verifier.room + 1)


def check_prompts_fit(
    config: AlignConfig, verifier: Verifier, corpus: Sequence[Wanted], heldout: Sequence[Wanted]
) -> None:
    """Raise ValueError for prompts that the verifier cannot continue, or that are trained on and judged by."""
    lengths = [len(each.prompt_ids) for each in corpus]
    with named(config, "prompts"):
        if min(lengths) + SHORTEST_RESPONSE > verifier.room:
            raise ValueError(
                f"no prompt leaves room for an answer of {SHORTEST_RESPONSE} tokens: the shortest has {min(lengths)} "
                f"tokens, the verifier's context is {verifier.room}"
            )
    with named(config, "heldout"):
        longest = max((len(each.prompt_ids) for each in heldout), default=0)
        if longest >= verifier.room:
            raise ValueError(f"a prompt has {longest} tokens, the verifier's context is {verifier.room}")
        trained = {tuple(each.prompt_ids) for each in corpus}
        both = {tuple(each.prompt_ids) for each in heldout} & trained
        if both:
            first = verifier.chat.decode(min(both))
            raise ValueError(
                f"{len(both)} of its prompts are trained on, too, the first: {' '.join(first.split())[:80]!r}; "
                "a drafter must be judged by others"
            )


def check_texts_fit(
    config: AlignConfig,
    verifier: Verifier,
    setups: Sequence[DrafterSetup],
    outlines: Mapping[str, Outline],
    wanted: tuple[Sequence[Wanted], Sequence[Wanted]],
) -> None:
    """Raise ValueError for a drafter that cannot take the texts that will be written.

    Args:
        wanted: of the corpus, and held out
    """
    corpus, heldout = ([len(each.prompt_ids) for each in own] for own in wanted)
    longest, longest_heldout = (
        min(max(lengths, default=0) + config.corpus.max_tokens, verifier.room) for lengths in (corpus, heldout)
    )
    tokens = {token for own in wanted for each in own for token in each.prompt_ids}
    for setup in setups:
        shape, drafter = outlines[setup.name].shape, outlines[setup.name].drafter
        context = min(setup.context or shape.max_position_embeddings, shape.max_position_embeddings)
        with named(config, f"drafter.{setup.name}"):
            if drafter and drafter.mask_token_id in tokens:
                raise ValueError(f"mask_token_id = {drafter.mask_token_id} is not allowed: prompts hold this token")
            if heldout and setup.evaluate_every and longest_heldout > shape.max_position_embeddings:
                raise ValueError(
                    f"its context of {shape.max_position_embeddings} tokens is shorter than a held-out text may be, "
                    f"{longest_heldout}; lower max_context in [verifier] or max_tokens in [corpus]"
                )
            shortest = min(min(corpus) + SHORTEST_RESPONSE, context)
            if setup.batch_tokens < shortest:
                raise ValueError(
                    f"batch_tokens = {setup.batch_tokens} is not allowed; allowed: at least {shortest}, the shortest "
                    f"prompt with {SHORTEST_RESPONSE} tokens of an answer"
                )
            refuse_large_batch(
                setup.plan,
                setup.batch_tokens,
                longest=min(longest, context),
                vocab_size=shape.vocab_size,
                device=setup.device,
            )
