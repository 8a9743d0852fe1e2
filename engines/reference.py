"""The reference engine: requests in, completions out, in torch on this machine.

Opens models, admits requests into lanes, and hands them to the decode loop (engines/decoding.py). Knows no task and no
study.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch

from engines.answer import Answer
from engines.cache import KVCache
from engines.chat import ChatTokenizer
from engines.checkpoints import load_decoder, model_digest, read_config
from engines.contract import MOST_THREADS, BareForwards, NumberFormat, Request, RoundSums, WarmUp
from engines.decoder import Decoder, causal_mask
from engines.decoding import Decoding
from engines.drafters.diffusion import DiffusionDrafting
from engines.drafters.loading import Host, open_drafter
from engines.draws import Draws
from engines.live import Live
from engines.models import resolve_model
from engines.pace import WIDTHS, Pace
from engines.speculation import Speculation
from engines.speculative.distributions import border_gap
from engines.speculative.drafts import NO_DRAFT
from engines.warming import warm_up
from results.alignment import read_alignment, stamps
from results.records import Completion

DTYPES: dict[NumberFormat, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
UNTIMED_CALLS, TIMED_CALLS = 2, 9
PACE_CONTEXT = 256
"""Tokens before the windows whose step times `auto` goes by, or half the context where it is shorter."""


class ReferenceEngine:
    """One target, with or without a drafter, in memory. Not safe for use from several threads."""

    def __init__(
        self,
        model: str,
        *,
        speculation: Speculation | None = None,
        number_format: NumberFormat = "float32",
        threads: int = 1,
        drafter_format: NumberFormat | None = None,
        max_context: int | None = None,
        concurrency: int = 1,
        thinking: bool | None = None,
    ) -> None:
        if not 1 <= threads <= MOST_THREADS:  # beyond what the system can give, the process would just be gone
            raise ValueError(f"threads = {threads} is not allowed; allowed: a whole number from 1 to {MOST_THREADS}")
        self.folder = resolve_model(model)
        read_config(self.folder)
        self.chat = ChatTokenizer(self.folder, thinking=thinking)
        self.speculation, self.threads, self.concurrency = speculation, threads, concurrency
        self.number_format, self.drafter_format = number_format, drafter_format or number_format
        target = load_decoder(self.folder, DTYPES[number_format])
        limit = target.config.max_position_embeddings
        self.context = min(limit, max_context or limit)
        nodes = speculation.most_nodes if speculation else 0
        cache = KVCache(target.config, concurrency, self.context + nodes + 1)
        host = Host(
            folder=self.folder,
            chat=self.chat,
            vocab_size=target.config.vocab_size,
            context=self.context,
            lanes=concurrency,
            dtype=DTYPES[self.drafter_format],
        )
        drafter = open_drafter(speculation, host) if speculation else None
        self.decoding = Decoding(target, cache, drafter, speculation.rule if speculation else "walk")
        if speculation and speculation.is_auto and isinstance(drafter, DiffusionDrafting):
            drafter.pace = self.measure_pace()
        self.exact: Decoder | None = None

    def stream(self, requests: Iterable[Request]) -> Iterator[Completion]:
        """Completions as they end; up to `concurrency` requests are served side by side, each in a lane of its own."""
        self.use_threads()
        waiting, lives = iter(requests), list[Live]()
        while True:
            arrived = list(islice(waiting, self.concurrency - len(lives)))
            for request in arrived:
                lives.append(self.admit(request, len(lives)))
                yield from self.retire(lives)
            if lives:
                self.decoding.step(lives)
                yield from self.retire(lives)
            elif not arrived:
                return

    def use_threads(self) -> None:
        """Make torch use as many threads as this engine was told; the number is the whole process's."""
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)

    def admit(self, request: Request, lane: int) -> Live:
        """Take a request into a lane. What is wrong with the request itself becomes its error."""
        begun = time.perf_counter()
        vocab_size = self.decoding.target.config.vocab_size
        prompt: list[int] = []
        error: str | None = None
        try:
            prompt = self.chat.prompt_ids(request.messages)
        except ValueError as refusal:
            error = str(refusal)
        room = self.context - len(prompt)
        if room < 1:
            error = f"the prompt has {len(prompt)} tokens, the context only {self.context}"
        elif not prompt:
            error = error or "the chat template makes no text of the messages"
        elif max(prompt) >= vocab_size:
            error = f"the prompt has token {max(prompt)}, the model only {vocab_size} of them"
        for token, _ in request.sampling.logit_bias:
            if token >= vocab_size:
                error = f"logit_bias names token {token}, the model has tokens 0 to {vocab_size - 1}"
        answer = Answer(self.chat, request.sampling, min(request.sampling.max_tokens, room))
        draws = Draws(request.sampling, [] if error else prompt, vocab_size)
        live = Live(request=request, prompt=prompt, answer=answer, draws=draws, lane=lane, begun=begun)
        if error:
            answer.fail(error)
        else:
            self.decoding.admit(live)
        return live

    def retire(self, lives: list[Live]) -> Iterator[Completion]:
        """Take ended sequences out; the last one moves into a lane that becomes free, so that there is no gap."""
        for live in [live for live in reversed(lives) if live.answer.finish]:
            last = lives.pop()
            if last is not live:
                self.decoding.move(last, live.lane)
                lives[live.lane] = last
            yield live.answer.completion(live.request.request_id, len(live.prompt))

    def complete(self, request: Request) -> Completion:
        """Serve one request."""
        (completion,) = self.stream([request])
        return completion

    def warm_up(self, requests: Iterable[Request]) -> WarmUp:
        """Decode until the step time settles."""
        return warm_up(self.stream, requests, self.concurrency)

    def bare_forwards(self, context: int, nodes: int) -> BareForwards:
        """Median seconds of drafting, and of verifying `nodes` drafted tokens, after `context` tokens.

        Raises ValueError where they do not fit.
        """
        most = self.speculation.most_nodes if self.speculation else 0
        if not 1 <= context <= self.context or not 0 <= nodes <= most:
            raise ValueError(
                f"context {context} with {nodes} nodes cannot be timed; allowed: 1 to {self.context} tokens, "
                f"the context of {self.folder}, with 0 to {most} nodes"
            )
        self.use_threads()
        drafter = self.decoding.drafter
        with torch.inference_mode():
            draft = median_seconds(lambda: drafter.rehearse(context)) if drafter else 0.0
            verify = median_seconds(lambda: self.decoding.rehearse(context, nodes))
        return BareForwards(draft_seconds=draft, verify_seconds=verify)

    def round_sums(self) -> dict[int, RoundSums]:
        """None beside the rounds of every answer."""
        return {}

    def measure_pace(self) -> Pace:
        """Step times by node count, for `auto`."""
        context = min(PACE_CONTEXT, self.context // 2)
        times = {nodes: self.bare_forwards(context, nodes) for nodes in (0, *WIDTHS)}
        draft = statistics.median(each.draft_seconds for each in times.values())
        return Pace(draft, {nodes: each.verify_seconds for nodes, each in times.items()})

    @torch.inference_mode()
    def token_gap(self, request: Request, prefix: Sequence[int], first: int, second: int) -> float:
        """Distance of two tokens' scores as the request's draw compares them (engines/contract.py)."""
        if self.exact is None:
            self.exact = load_decoder(self.folder, torch.float32)
        prompt = self.chat.prompt_ids(request.messages)
        ids = torch.tensor([prompt + list(prefix)])
        rows = ids.shape[1]
        scores = self.exact.logits(self.exact(ids, torch.arange(rows), causal_mask(rows))[0, -1:])
        draws = Draws(request.sampling, prompt, self.exact.config.vocab_size)
        draws.keep(list(prefix))
        adjusted = draws.adjusted(scores, NO_DRAFT)
        compared = draws.compared(adjusted, NO_DRAFT, len(prefix))[0]
        apart = abs(float(compared[first] - compared[second]))
        # Neither token is drawn where a cut-off drops both; then their borders alone say how near a tie it was.
        borders = [border_gap(adjusted[0], request.sampling, token) for token in (first, second)]
        return min(math.inf if math.isnan(apart) else apart, *borders)

    def describe(self) -> dict[str, Any]:
        """Resolved settings and digests."""
        described: dict[str, Any] = {
            "engine": "reference",
            "model_digest": model_digest(self.folder),
            "number_format": self.number_format,
            "threads": self.threads,
            "context": self.context,
            "concurrency": self.concurrency,
            "chat_template": self.chat.template_digest,
            "torch": torch.__version__,
        }
        if self.chat.thinking is not None:
            described["thinking"] = self.chat.thinking
        if self.speculation:
            described |= stamps_of(self.speculation)
            digests = [model_digest(resolve_model(name)) for name in self.speculation.drafters]
            described["drafter_digest"] = digests[0] if len(digests) == 1 else digests
            described["drafter_format"] = self.drafter_format
        drafter = self.decoding.drafter
        if isinstance(drafter, DiffusionDrafting) and drafter.pace:
            described["pace"] = drafter.pace.describe()
        return described

    def close(self) -> None:
        """Nothing outlives the object."""


def stamps_of(speculation: Speculation) -> dict[str, list[str]]:
    """Names of drafters that were trained on evaluation problems, or unchecked; nothing where there are none."""
    return stamps({name: read_alignment(resolve_model(name)) for name in speculation.drafters})


def median_seconds(work: Callable[[], object]) -> float:
    """Median time of repeated calls, the first ones left out."""
    seconds = []
    for _ in range(TIMED_CALLS + UNTIMED_CALLS):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds[UNTIMED_CALLS:])
