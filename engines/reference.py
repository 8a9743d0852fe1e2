"""The reference engine: speculative decoding under a wall-clock budget, in torch, one sequence at a time.

`decode` is the algorithm: prefill; then draft, verify, accept, commit until the answer ends. Plain decoding is the same
loop with an empty draft. Knows no task and no study; the laws and rules are in engines/speculative/.
"""

import random
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, pairwise
from typing import Any

import torch
from torch import Tensor

from engines.answer import Answer
from engines.chat import ChatTokenizer
from engines.checkpoints import load_decoder, model_digest, read_config, read_drafter_config
from engines.contract import NumberFormat, Request, Speculation, WarmUp
from engines.decoder import KVCache, causal_mask
from engines.drafter import DiffusionDrafter
from engines.models import resolve_model
from engines.speculative.distributions import PositionNoise, log_law, target_tokens
from engines.speculative.drafts import DraftTree, ancestors_mask, draft_chain, draft_iid
from engines.speculative.verification import Verdict, select_draft, walk
from results.records import Completion

DTYPES: dict[NumberFormat, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
NO_DRAFT = DraftTree([], [], [], [])
WARM_UP_WINDOW, WARM_UP_TOLERANCE, WARM_UP_ROUNDS = 20, 0.03, 200


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
    ) -> None:
        self.folder = resolve_model(model)
        read_config(self.folder)
        self.chat = ChatTokenizer(self.folder)
        self.speculation, self.threads = speculation, threads
        self.number_format, self.drafter_format = number_format, drafter_format or number_format
        self.target = load_decoder(self.folder, DTYPES[number_format])
        limit = self.target.config.max_position_embeddings
        self.context = min(limit, max_context or limit)
        self.drafter = self.load_drafter(speculation) if speculation else None
        nodes = speculation.window * speculation.num_drafts if speculation else 0
        self.cache = KVCache(self.target.config, 1, self.context + nodes + 1, DTYPES[number_format])
        self.exact: Any = None

    def load_drafter(self, speculation: Speculation) -> DiffusionDrafter:
        """The drafter of an arm. Raises ValueError where it does not fit the target."""
        folder = resolve_model(speculation.drafter)
        config = read_drafter_config(folder)
        shape, _ = read_config(folder)
        if shape.vocab_size != self.target.config.vocab_size:
            raise ValueError(
                f"{folder}: the drafter's vocabulary has {shape.vocab_size} entries, "
                f"that of the target {self.folder} has {self.target.config.vocab_size}; they must be the same"
            )
        if shape.max_position_embeddings < self.context:
            raise ValueError(
                f"{folder}: the drafter's context of {shape.max_position_embeddings} tokens is shorter than the "
                f"target's {self.context}; set max_context in [engine] to the smaller one"
            )
        decoder = load_decoder(folder, DTYPES[self.drafter_format])
        return DiffusionDrafter(decoder, config, speculation.window, self.context)

    @torch.inference_mode()
    def decode(self, prompt: list[int], answer: Answer, request: Request) -> None:
        """Fill `answer`: prefill, then rounds of draft, verify, accept and commit."""
        begun = time.perf_counter()
        draws = Draws(self, request)
        scores = self.prefill(prompt)
        kept = answer.keep(draws.tokens(scores, [0]))
        answer.note(kept=kept, drafted=0, accepted=0, draft=0.0, verify=0.0, seconds=time.perf_counter() - begun)
        while answer.finish is None:
            drafting = time.perf_counter()
            tree = self.draft(prompt + answer.tokens, draws)
            verifying = time.perf_counter()
            scores = self.verify(answer.tokens[-1], tree)
            verified = time.perf_counter()
            accepted, bonus = self.accept(tree, scores, draws, len(answer.tokens))
            kept = answer.keep([tree.tokens[node] for node in accepted] + [bonus])
            self.cache.commit_path([0] + [node + 1 for node in accepted])
            now = time.perf_counter()
            answer.note(
                kept=kept,
                drafted=len(tree.tokens),
                accepted=len(accepted),
                draft=verifying - drafting,
                verify=verified - verifying,
                seconds=now - begun,
            )
            if answer.finish is None and now - begun >= request.budget_seconds:
                answer.finish = "budget"

    def prefill(self, prompt: list[int]) -> Tensor:
        """Fill the cache with the prompt; scores after its last token: [1, V]."""
        self.cache.reset()
        if self.drafter:
            self.drafter.reset()
        rows = len(prompt)
        mask = causal_mask(rows, self.cache.store.dtype)
        hidden = self.target(torch.tensor([prompt]), torch.arange(rows), mask, self.cache)
        self.cache.commit(rows)
        return self.target.logits(hidden[0, -1:]).float()

    def draft(self, tokens: list[int], draws: "Draws") -> DraftTree:
        """Candidates for what follows `tokens`."""
        if self.drafter is None or self.speculation is None:
            return NO_DRAFT
        marginals = self.drafter.marginals(tokens)
        if self.speculation.shape == "chain":
            return draft_chain(marginals)
        return draft_iid(marginals, self.speculation.num_drafts, self.speculation.draft_temperature, draws.generator)

    def verify(self, bonus: int, tree: DraftTree) -> Tensor:
        """One target forward over the bonus token and all nodes: scores [1 + N, V]."""
        start, dtype = self.cache.length, self.cache.store.dtype
        mask = ancestors_mask(tree, start, dtype) if tree.tokens else None
        positions = torch.tensor([start, *(start + depth for depth in tree.depths)])
        hidden = self.target(torch.tensor([[bonus, *tree.tokens]]), positions, mask, self.cache)
        return self.target.logits(hidden[0]).float()

    def accept(self, tree: DraftTree, scores: Tensor, draws: "Draws", generated: int) -> Verdict:
        """Apply the arm's rule to the target's draws at every node."""
        drawn = draws.tokens(scores, [generated, *(generated + depth for depth in tree.depths)])
        allowed = None
        if self.speculation and self.speculation.rule == "paper" and len(tree.leaves) > 1:
            allowed = set(select_draft(tree, log_law(scores, draws.temperature)))
        return walk(tree, drawn, allowed)

    def complete(self, request: Request) -> Completion:
        """Serve one request. What is wrong with the request itself becomes its error."""
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        prompt = self.chat.prompt_ids(request.messages)
        room = self.context - len(prompt)
        answer = Answer(self.chat, request.sampling, min(request.sampling.max_tokens, room))
        if room < 1:
            error = f"the prompt has {len(prompt)} tokens, the context only {self.context}"
        else:
            self.decode(prompt, answer, request)
            return answer.completion(request.request_id, len(prompt))
        return Completion(
            request_id=request.request_id,
            text="",
            token_ids=(),
            prompt_tokens=len(prompt),
            finish_reason="error",
            rounds=(),
            error=error,
        )

    def stream(self, requests: Iterable[Request]) -> Iterator[Completion]:
        """Completions one after the other, in the order of the requests."""
        for request in requests:
            yield self.complete(request)

    def warm_up(self, requests: Iterable[Request]) -> WarmUp:
        """Decode until the median time of 20 rounds moves by less than 3 %, at most 200 rounds."""
        turns = cycle(requests)
        seconds: list[float] = []
        medians: list[float] = []
        fruitless = 0
        while len(seconds) < WARM_UP_ROUNDS and fruitless < WARM_UP_WINDOW:
            completion = self.complete(next(turns))
            # A prompt without room, or an answer of one token, has no round to time; the study records it as it is.
            fruitless = fruitless + 1 if len(completion.rounds) < 2 else 0
            marks = [r.seconds for r in completion.rounds]
            seconds += [after - before for before, after in pairwise(marks)]
            medians = [
                statistics.median(seconds[at : at + WARM_UP_WINDOW])
                for at in range(0, len(seconds) - WARM_UP_WINDOW + 1, WARM_UP_WINDOW)
            ]
            if len(medians) >= 2 and abs(medians[-1] / medians[-2] - 1) < WARM_UP_TOLERANCE:
                return WarmUp(rounds=len(seconds), settled=True, median_round_seconds=medians[-1])
        return WarmUp(
            rounds=len(seconds), settled=False, median_round_seconds=statistics.median(seconds) if seconds else 0.0
        )

    @torch.inference_mode()
    def token_gap(self, request: Request, prefix: Sequence[int], first: int, second: int) -> float:
        """Distance of two tokens' target logits after prompt and prefix, in float32."""
        if self.exact is None:
            self.exact = load_decoder(self.folder, torch.float32)
        ids = torch.tensor([self.chat.prompt_ids(request.messages) + list(prefix)])
        rows = ids.shape[1]
        scores = self.exact.logits(self.exact(ids, torch.arange(rows), causal_mask(rows))[0, -1])
        return abs(float(scores[first] - scores[second]))

    def describe(self) -> dict[str, Any]:
        """Resolved settings and digests."""
        described: dict[str, Any] = {
            "engine": "reference",
            "model_digest": model_digest(self.folder),
            "number_format": self.number_format,
            "threads": self.threads,
            "context": self.context,
            "chat_template": self.chat.template_digest,
            "torch": torch.__version__,
        }
        if self.speculation:
            described["drafter_digest"] = model_digest(resolve_model(self.speculation.drafter))
            described["drafter_format"] = self.drafter_format
        return described

    def close(self) -> None:
        """Nothing outlives the object."""


class Draws:
    """The random side of one request: the target's draws by position, and a generator for sampled drafts."""

    def __init__(self, engine: ReferenceEngine, request: Request) -> None:
        self.temperature = request.sampling.temperature
        seed = request.sampling.seed
        seed = random.SystemRandom().getrandbits(32) if seed is None else seed
        self.noise = PositionNoise(seed, engine.target.config.vocab_size)
        self.generator = torch.Generator().manual_seed(seed)

    def tokens(self, scores: Tensor, positions: list[int]) -> list[int]:
        """The target's token of every row, where row i stands for the given position of the answer."""
        noise = self.noise.rows(positions) if self.temperature > 0 else None
        tokens: list[int] = target_tokens(scores, self.temperature, noise).tolist()
        return tokens
