"""The answer of one request as it grows: which tokens are kept, when it ends, and the record of its rounds.

Knows tokens, text and seconds that are handed in; no model. Tokens after an end token or a stop string inside an
accepted run are not kept.
"""

from engines.chat import ChatTokenizer
from engines.sampling import Sampling
from results.records import Completion, FinishReason, Round


class Answer:
    """Collects kept tokens and rounds until something ends it: end token or stop string, token cap, or budget."""

    def __init__(self, chat: ChatTokenizer, sampling: Sampling, max_tokens: int) -> None:
        self.chat = chat
        self.stop = sampling.stop
        self.max_tokens = max_tokens
        self.tokens: list[int] = []
        self.finish: FinishReason | None = None
        self.error: str | None = None
        self.growing = chat.growing_text()
        self.rounds: list[tuple[int, int, int, float, float, float]] = []

    def keep(self, run: list[int]) -> int:
        """Append tokens of a round until the answer ends; returns how many were kept."""
        for count, token in enumerate(run, start=1):
            self.tokens.append(token)
            if token in self.chat.stop_ids or (self.stop and self.stopped_at(self.growing.add(token)) is not None):
                self.finish = "stop"
            elif len(self.tokens) >= self.max_tokens:
                self.finish = "length"
            if self.finish:
                return count
        return len(run)

    def fail(self, error: str) -> None:
        """End the answer with an error; what it has so far stays."""
        self.finish, self.error = "error", error

    def stopped_at(self, text: str) -> int | None:
        """Where the first stop string begins in the text, or None."""
        found = [at for at in (text.find(stop) for stop in self.stop) if at >= 0]
        return min(found) if found else None

    def note(self, *, kept: int, drafted: int, accepted: int, draft: float, verify: float, seconds: float) -> None:
        """Record a round; texts and objects are made later, off the clock."""
        self.rounds.append((kept, drafted, min(accepted, kept), draft, verify, seconds))

    def completion(self, request_id: str, prompt_tokens: int) -> Completion:
        """The finished answer with its rounds."""
        growing = self.chat.growing_text()
        lengths = [0, *(len(growing.add(token)) for token in self.tokens)]
        text = growing.text[: self.stopped_at(growing.text)]
        rounds, total = [], 0
        for kept, drafted, accepted, draft, verify, seconds in self.rounds:
            total += kept
            rounds.append(
                Round(
                    seconds=seconds,
                    kept=kept,
                    chars=min(lengths[total], len(text)),
                    drafted=drafted,
                    accepted=accepted,
                    draft_seconds=draft,
                    verify_seconds=verify,
                )
            )
        return Completion(
            request_id=request_id,
            text=text,
            token_ids=tuple(self.tokens),
            prompt_tokens=prompt_tokens,
            finish_reason=self.finish or "length",
            rounds=tuple(rounds),
            error=self.error,
        )
