"""Model directories of a server's models: local ones, or what this process needs of a model on a hub.

Knows names and files. The server reads a hub's weights itself; here only the tokenizer and the configuration are
fetched, when an engine is opened.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from engines.chat import TOKENIZER_FILE, vocabulary
from engines.checkpoints import read_drafter_settings
from engines.drafters.loading import refuse_other_tokens, words
from engines.json_object import JsonObject, read_json
from engines.libraries import reading
from engines.models import resolve_model
from engines.speculation import Speculation

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
SMALL_FILES = ("*.json", "*.model", "*.jinja", "merges.txt", "vocab.txt")
NO_CONTEXT = 4096
"""Of a configuration that does not say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """A model as the server takes it (`name`), and the directory with its tokenizer and configuration."""

    name: str
    folder: Path
    is_local: bool

    @property
    def context(self) -> int:
        """Tokens that fit."""
        return self._config.whole("max_position_embeddings", least=1, default=NO_CONTEXT)

    @property
    def vocab_size(self) -> int:
        """Tokens that it knows."""
        found = vocabulary(self.folder)
        if found is None:
            raise FileNotFoundError(f"{self.folder}: not a model directory (no config.json)")
        return found

    def refuse_without_mask(self) -> None:
        """Raise ValueError for a model that is no diffusion drafter."""
        read_drafter_settings(self._config, self.vocab_size)

    @property
    def _config(self) -> JsonObject:
        path = self.folder / "config.json"
        return JsonObject(path, read_json(path))


def is_hub_name(name: str) -> bool:
    """Whether a name may be a hub's: OWNER/MODEL, and nothing of that name here."""
    return bool(HUB_NAME.fullmatch(name)) and not name.startswith(".") and not Path(name).exists()


def find_model(name: str) -> ModelFiles:
    """A model by its name. Raises ValueError or OSError where there is none, or the hub does not give it."""
    if not is_hub_name(name):
        folder = resolve_model(name).resolve()
        return ModelFiles(name=str(folder), folder=folder, is_local=True)
    from huggingface_hub import snapshot_download

    with reading(Path(name), "its tokenizer and configuration cannot be fetched"):
        folder = Path(snapshot_download(name, allow_patterns=list(SMALL_FILES)))
    return ModelFiles(name=name, folder=folder, is_local=False)


def check_drafter(
    drafter: ModelFiles, target: ModelFiles, speculation: Speculation, context: int, *, started: bool
) -> None:
    """Raise ValueError for a drafter that does not fit the target.

    Args:
        started: whether its server is started here; it then knows of a drafter what config.json says
    """
    if speculation.drafting == "diffusion":
        if started:
            drafter.refuse_without_mask()
        sizes = drafter.vocab_size, target.vocab_size
        refuse_other_tokens(drafter.folder, sizes[0], target.folder, sizes[1], remedy="they must be the same")
    elif (drafter.folder / TOKENIZER_FILE).is_file() and words(drafter.folder) != words(target.folder):
        # Autoregressive drafters of one family differ in the padding of their vocabularies, which the server allows.
        raise ValueError(f"{drafter.folder}: the drafter's tokens are not those of the target {target.folder}")
    if drafter.context < context:
        raise ValueError(
            f"{drafter.folder}: the drafter's context of {drafter.context} tokens is shorter than the target's "
            f"{context}; set max_context in [engine] to the smaller one"
        )
