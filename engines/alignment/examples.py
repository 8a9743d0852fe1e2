"""A training example: a prompt and a response as token ids."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt and the response to learn, as token ids; a finished response ends with the end token."""

    prompt_ids: list[int]
    response_ids: list[int]
