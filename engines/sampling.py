"""The target's law: how its tokens are drawn, and when to stop. Plain values, no tensors."""

import math
from dataclasses import dataclass

SMALLEST_TEMPERATURE = 1e-3
"""Below it scores over temperature leave the range of float32; 0 is argmax and always allowed."""

SMALLEST_TOP_P = 1e-6
"""Far below it a float32 is 0, which would leave no token at all."""

LARGEST_BIAS = 1e6


def require(condition: bool, name: str, value: object, allowed: str) -> None:
    """Raise the one-line ValueError of a bad setting: what, its value (None: not given), what is allowed."""
    if not condition:
        wrong = f"{name} is missing" if value is None else f"{name} = {value!r} is not allowed"
        raise ValueError(f"{wrong}; allowed: {allowed}")


def is_temperature(value: float) -> bool:
    """Whether a law can be taken at this temperature."""
    return value == 0 or SMALLEST_TEMPERATURE <= value < math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are drawn from the target, and when to stop. The defaults leave the model's law as it is.

    temperature:         0 is argmax
    top_k, top_p, min_p: what is cut from the law, in this order, after the temperature; 0, 1 and 0 cut nothing
    repetition_penalty:  divides positive scores (multiplies negative ones) of tokens in the prompt or the answer
    presence_penalty, frequency_penalty: taken from the scores of tokens in the answer, once or per occurrence
    logit_bias:          (token id, number) pairs added to scores
    seed:                makes draws repeatable
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    max_tokens: int = 1024
    stop: tuple[str, ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        allowed = f"0, or a finite number >= {SMALLEST_TEMPERATURE}"
        require(is_temperature(self.temperature), "temperature", self.temperature, allowed)
        require(self.top_k >= 0, "top_k", self.top_k, "a whole number >= 0 (0: all tokens)")
        require(
            SMALLEST_TOP_P <= self.top_p <= 1, "top_p", self.top_p, f"a number from {SMALLEST_TOP_P:g} on, at most 1"
        )
        require(0 <= self.min_p < 1, "min_p", self.min_p, "a number from 0 on, below 1")
        positive = 0 < self.repetition_penalty < math.inf
        require(positive, "repetition_penalty", self.repetition_penalty, "a finite number > 0")
        for name in ("presence_penalty", "frequency_penalty"):
            require(math.isfinite(getattr(self, name)), name, getattr(self, name), "a finite number")
        for token, bias in self.logit_bias:
            fine = token >= 0 and abs(bias) <= LARGEST_BIAS
            require(fine, "logit_bias", (token, bias), f"token ids >= 0 with numbers up to +-{LARGEST_BIAS:g}")
        require(self.max_tokens >= 1, "max_tokens", self.max_tokens, "a whole number >= 1")
        require(all(self.stop), "stop", self.stop, "non-empty strings")

    @property
    def penalizes(self) -> bool:
        """Whether the law depends on which tokens are in prompt and answer already."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0
