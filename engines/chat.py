"""Between chat and tokens: the tokenizer of a model directory, its chat template, and text that grows with the tokens.

Knows a directory's tokenizer files; no model and no sampling.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from tokenizers.decoders import DecodeStream
from transformers import AutoTokenizer

from engines.checkpoints import read_json

TOKENIZER_FILE = "tokenizer.json"


class ChatTokenizer:
    """Turns messages into prompt ids and generated ids into text."""

    def __init__(self, folder: Path) -> None:
        if not (folder / TOKENIZER_FILE).is_file():
            raise FileNotFoundError(f"{folder}: model directory without a tokenizer (no {TOKENIZER_FILE})")
        if "model" not in read_json(folder / TOKENIZER_FILE):
            raise ValueError(f"{folder / TOKENIZER_FILE}: no tokenizer (nothing under 'model')")
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        if not self.tokenizer.chat_template:
            raise ValueError(f"{folder}: the tokenizer has no chat template; add chat_template to its configuration")
        try:
            self.prompt_ids([{"role": "user", "content": "?"}])
        except TemplateError as error:
            raise ValueError(f"{folder}: the chat template cannot be rendered: {error}") from None
        self.stop_ids = stop_ids(folder, self.tokenizer)

    @property
    def template_digest(self) -> str:
        """Twelve hex digits that change with the chat template."""
        return hashlib.sha256(str(self.tokenizer.chat_template).encode()).hexdigest()[:12]

    def prompt_ids(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a chat up to where the model's answer begins."""
        text = self.tokenizer.apply_chat_template(
            [dict(message) for message in messages], add_generation_prompt=True, tokenize=False
        )
        return list(self.tokenizer.encode(str(text), add_special_tokens=False))

    def growing_text(self) -> "GrowingText":
        """An empty text to which generated tokens are added."""
        return GrowingText(self)


class GrowingText:
    """The text of the tokens so far, special tokens left out; each token costs the same, however long the text is."""

    def __init__(self, chat: ChatTokenizer) -> None:
        self.backend = chat.tokenizer.backend_tokenizer
        self.decoder = DecodeStream(skip_special_tokens=True)
        self.text = ""

    def add(self, token: int) -> str:
        """Append a token; returns the text so far. Bytes of an unfinished character wait for the next token."""
        piece = self.decoder.step(self.backend, token)
        if piece:
            self.text += piece
        return self.text


def stop_ids(folder: Path, tokenizer: Any) -> frozenset[int]:
    """Tokens that end an answer: those of generation_config.json or config.json, and the tokenizer's own."""
    found: set[int | None] = {tokenizer.eos_token_id}
    for name in ("config.json", "generation_config.json"):
        path = folder / name
        value = json.loads(path.read_text()).get("eos_token_id") if path.is_file() else None
        found.update(value if isinstance(value, list) else [value])
    known = frozenset(token for token in found if token is not None)
    if not known:
        raise ValueError(f"{folder}: no end-of-text token in config.json, generation_config.json or the tokenizer")
    return known
