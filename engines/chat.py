"""Between chat and tokens: the tokenizer of a model directory, its chat template, and text that grows with the tokens.

Knows a directory's tokenizer files; no model and no sampling.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from tokenizers.decoders import DecodeStream
from transformers import AutoTokenizer

from engines.json_object import JsonObject, read_json
from engines.libraries import reading

TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_SETTINGS = "tokenizer_config.json"
TEMPLATE_ALLOWED = "a text, or a list of texts with names, one of them 'default'"


class ChatTokenizer:
    """Turns messages into prompt ids and generated ids into text.

    thinking: handed to the chat template as `enable_thinking`; None: the template's own default
    """

    def __init__(self, folder: Path, *, thinking: bool | None = None) -> None:
        self.thinking = thinking
        check_files(folder)
        vocab_size = vocabulary(folder)
        configured = configured_ends(folder, vocab_size)
        with reading(folder, "transformers cannot read the tokenizer"):
            self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        if not self.tokenizer.chat_template:
            raise ValueError(f"{folder}: the tokenizer has no chat template; add chat_template to its configuration")
        with reading(folder, "the chat template cannot be rendered"):
            prompt = self.prompt_ids([{"role": "user", "content": "?"}])
        if not prompt:
            raise ValueError(f"{folder}: the chat template makes no text of a user's message")
        if vocab_size is not None and max(prompt) >= vocab_size:
            raise ValueError(f"{folder}: the tokenizer writes token {max(prompt)}, the model knows only {vocab_size}")
        self.stop_ids = configured | ({self.tokenizer.eos_token_id} - {None})
        if not self.stop_ids:
            raise ValueError(f"{folder}: no end-of-text token in config.json, generation_config.json or the tokenizer")

    @property
    def template_digest(self) -> str:
        """Twelve hex digits that change with the chat template."""
        return hashlib.sha256(str(self.tokenizer.chat_template).encode()).hexdigest()[:12]

    def prompt_ids(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a chat up to where the model's answer begins.

        Raises ValueError where the chat template refuses the messages, as some do those of a system.
        """
        flags = {} if self.thinking is None else {"enable_thinking": self.thinking}
        try:
            text = self.tokenizer.apply_chat_template(
                [dict(message) for message in messages], add_generation_prompt=True, tokenize=False, **flags
            )
        except (TemplateError, TypeError) as error:
            raise ValueError(f"the chat template refuses the messages: {error}") from None
        return list(self.tokenizer.encode(str(text), add_special_tokens=False))

    def encode(self, text: str) -> list[int]:
        """Tokens of a piece of text."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens, special ones left out."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False))

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


def check_files(folder: Path) -> None:
    """Raise ValueError or FileNotFoundError for what is wrong with a directory's tokenizer files at first sight."""
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{folder}: model directory without a tokenizer (no {TOKENIZER_FILE})")
    if "model" not in read_json(path):
        raise ValueError(f"{path}: no tokenizer (nothing under 'model')")
    for name in (TOKENIZER_SETTINGS, "special_tokens_map.json", "added_tokens.json"):
        if (folder / name).is_file():
            settings = JsonObject(folder / name, read_json(folder / name))
            check_template(settings)


def check_template(settings: JsonObject) -> None:
    """Raise ValueError for a chat template of another type; several have names, and `default` is the one in use."""
    template = settings.get("chat_template", "")
    if isinstance(template, list):
        named = [each for each in template if isinstance(each, dict) and isinstance(each.get("template"), str)]
        if len(named) == len(template) and "default" in [each.get("name") for each in named]:
            return
    elif isinstance(template, str):
        return
    raise settings.refuse("chat_template", TEMPLATE_ALLOWED)


def vocabulary(folder: Path) -> int | None:
    """How many tokens the model of a directory knows; None where a tokenizer stands alone."""
    path = folder / "config.json"
    return JsonObject(path, read_json(path)).whole("vocab_size", least=1) if path.is_file() else None


def configured_ends(folder: Path, vocab_size: int | None) -> frozenset[int]:
    """Tokens that end an answer by config.json or generation_config.json."""
    paths = [folder / name for name in ("config.json", "generation_config.json") if (folder / name).is_file()]
    return frozenset(
        token for path in paths for token in JsonObject(path, read_json(path)).token_ids("eos_token_id", vocab_size)
    )
