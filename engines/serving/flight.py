"""One request at a server: sent, streamed, ended at its deadline, and made into a completion.

Knows the native interface's chunks and one request's clock; the clock `service` starts when the server takes the
request out of its queue, which the first chunk tells. Which tokens are kept, and where a stop string cuts, is
engines/answer.py's matter, as for every engine.
"""

import http.client
import math
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from engines.answer import Answer
from engines.chat import ChatTokenizer
from engines.contract import Request
from engines.sampling import Sampling
from engines.serving.client import Client, RefusedError
from engines.serving.rounds import rounds_of
from results.records import Completion

LARGEST_SEED = 2**31 - 1
ABORTED = "abort"
LOST = (OSError, http.client.HTTPException)
"""What a call raises where the server is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What all requests of an engine share: the server, its tokenizer and its limits; a round drafts `nodes` tokens."""

    client: Client
    chat: ChatTokenizer
    context: int
    vocab_size: int
    nodes: int
    seeds: bool
    incremental: bool


@dataclass(slots=True, kw_only=True)
class Chunk:
    """Tokens that came together, and when, in seconds since the request was sent."""

    tokens: list[int]
    seconds: float


@dataclass(slots=True)
class Flight:
    """A request under way. `fly` blocks until it has ended; `abort` may be called from any thread.

    counted: chunks that came before the answer was at its end; later ones only tell rounds apart
    """

    lane: Lane
    request: Request
    rid: str
    refusal: str | None = None
    prompt: list[int] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    begun: float = 0.0
    queue_seconds: float = 0.0
    counted: int = 0
    landed: threading.Event = field(default_factory=threading.Event)
    is_aborted: bool = False

    def fly(self) -> Completion:
        """Send it and read it to its end. Raises OSError or http.client.HTTPException where the server is lost."""
        self.begun = time.perf_counter()
        try:
            answer = self._start()
        except ValueError as error:
            answer = self._answer(self.lane.context)
            answer.fail(str(error))
            return self._completion(answer)
        timer: threading.Timer | None = None
        try:
            for chunk in self.lane.client.stream(self._body(answer)):
                self._take(chunk, answer)
                if answer.finish and not self.is_aborted and not self.meta.get("finish_reason"):
                    self.abort()
                if timer is None and not answer.finish and math.isfinite(self.request.budget_seconds):
                    timer = self._deadline()
        except RefusedError as refusal:
            answer.fail(str(refusal))
        finally:
            self.landed.set()
            if timer:
                timer.cancel()
        self._conclude(answer)
        return self._completion(answer)

    def abort(self) -> None:
        """End it at the server; the stream then ends with what it has."""
        if not self.landed.is_set():
            self.is_aborted = True
            self.lane.client.abort(self.rid)

    def leave(self) -> None:
        """The same for a thread that cannot act on a lost server: the one that reads the stream says so."""
        with suppress(*LOST):
            self.abort()

    def _start(self) -> Answer:
        """The prompt's tokens, and an empty answer. Raises ValueError for what cannot be asked."""
        lane, sampling = self.lane, self.request.sampling
        if self.refusal:
            raise ValueError(self.refusal)
        self.prompt = lane.chat.prompt_ids(self.request.messages)
        room = lane.context - len(self.prompt)
        if room < 1:
            raise ValueError(f"the prompt has {len(self.prompt)} tokens, the context only {lane.context}")
        if not self.prompt:
            raise ValueError("the chat template makes no text of the messages")
        # A token that the model does not have ends the whole server, not the request.
        if max(self.prompt) >= lane.vocab_size:
            raise ValueError(f"the prompt has token {max(self.prompt)}, the model only {lane.vocab_size} of them")
        for token, _ in sampling.logit_bias:
            if token >= lane.vocab_size:
                raise ValueError(f"logit_bias names token {token}, the model has tokens 0 to {lane.vocab_size - 1}")
        return self._answer(room)

    def _answer(self, room: int) -> Answer:
        sampling = self.request.sampling
        return Answer(self.lane.chat, sampling, min(sampling.max_tokens, max(1, room)))

    def _body(self, answer: Answer) -> dict[str, Any]:
        return {
            "rid": self.rid,
            "input_ids": self.prompt,
            "sampling_params": sampling_params(
                self.request.sampling, answer.max_tokens, self.lane.chat, seeds=self.lane.seeds
            ),
        }

    def _take(self, chunk: Mapping[str, Any], answer: Answer) -> None:
        """A chunk's tokens, with the moment of their arrival."""
        seconds = time.perf_counter() - self.begun
        self.meta = dict(chunk["meta_info"])
        if not self.chunks:
            self.queue_seconds = min(seconds, float(self.meta.get("queue_time") or 0.0))
        tokens = list(chunk["output_ids"])
        if not self.lane.incremental:
            tokens = tokens[sum(len(each.tokens) for each in self.chunks) :]
        if tokens:
            self.chunks.append(Chunk(tokens=tokens, seconds=seconds))
        if answer.finish:
            return  # kept for the count of rounds alone
        self.counted = len(self.chunks)
        answer.keep(tokens)
        if answer.finish is None and seconds - self.queue_seconds >= self.request.budget_seconds:
            answer.finish = "budget"

    def _deadline(self) -> threading.Timer:
        """A timer that ends the request when its budget is spent."""
        left = self.begun + self.queue_seconds + self.request.budget_seconds - time.perf_counter()
        timer = threading.Timer(max(0.0, left), self.leave)
        timer.daemon = True
        timer.start()
        return timer

    def _conclude(self, answer: Answer) -> None:
        """How it ended, where its tokens do not say it."""
        reason = self.meta.get("finish_reason") or {}
        kind = reason.get("type")
        if answer.finish:
            return
        if kind == ABORTED and self.is_aborted:
            answer.finish = "budget"
        elif kind in ("stop", "length"):
            answer.finish = kind
        else:
            answer.fail(f"the server ended the request: {reason.get('message') or kind or 'no reason given'}")

    def _completion(self, live: Answer) -> Completion:
        """The answer with its rounds told apart; made off the clock, since the counts come with the last chunk."""
        answer = self._answer(self.lane.context - len(self.prompt))
        for at, (chunk, sizes) in enumerate(zip(self.chunks, self._sizes(), strict=True)):
            if at == self.counted:
                break
            done = 0
            for size in sizes:
                run = chunk.tokens[done : done + size]
                done += len(run)
                is_prefill = at == 0 and done == len(run)
                drafted = 0 if is_prefill else self.lane.nodes
                if run and answer.finish is None:
                    kept = answer.keep(run)
                    answer.note(
                        kept=kept, drafted=drafted, accepted=size - 1, draft=0.0, verify=0.0, seconds=chunk.seconds
                    )
        answer.finish, answer.error = live.finish, live.error
        made = answer.completion(self.request.request_id, len(self.prompt))
        return replace(made, queue_seconds=self.queue_seconds, cached_tokens=int(self.meta.get("cached_tokens") or 0))

    def _sizes(self) -> list[list[int]]:
        """Tokens of the rounds in each chunk; the first round is the prefill, with one token."""
        if not self.chunks:
            return []
        first, *later = [len(chunk.tokens) for chunk in self.chunks]
        histogram = self.meta.get("spec_correct_drafts_histogram") if self.lane.nodes else None
        if self.lane.nodes and histogram is None:
            histogram = []
        head = [first - 1] if first > 1 else []
        sizes = rounds_of([*head, *later], histogram)
        return [[1, *(sizes.pop(0) if head else [])], *sizes]


def sampling_params(sampling: Sampling, max_tokens: int, chat: ChatTokenizer, *, seeds: bool) -> dict[str, Any]:
    """A request's law as the native interface takes it; everything is said, since a server may have other defaults."""
    params: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_k": sampling.top_k or -1,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "max_new_tokens": max_tokens,
        "stop": list(sampling.stop),
        "stop_token_ids": sorted(chat.stop_ids),
    }
    if sampling.logit_bias:
        params["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias}
    if seeds and sampling.seed is not None and sampling.temperature > 0:
        params["sampling_seed"] = sampling.seed & LARGEST_SEED
    return params
