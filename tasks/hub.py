"""Rows of a data set on the hub: from the user's cache where they lie there, and a refusal within seconds.

Knows no benchmark. One request without retries asks whether the hub gives the data set to this user; the loaders'
own retries would take half a minute over a hub that is not there. Where it does not, the cache alone is asked.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE_SECONDS = 5.0
GATED = "gated on the hub"
UNREACHABLE = "the hub cannot be reached, and no copy is in the cache; check the network"


def load_hub(
    source: str, config: str | None, split: str, *, revision: str | None = None, gated: bool, otherwise: str
) -> list[dict[str, Any]]:
    """The rows of a data set.

    Args:
        source: its id, org/name
        config, split: as on the hub
        revision: a commit, branch or tag of the data set; None is its newest
        gated: whether it is known to be gated, so that an error can say so without the hub
        otherwise: what else a user can do, for errors

    Raises:
        OSError: a hub that cannot be reached or refuses.
        ValueError: an unknown config or split.
    """
    import datasets

    given = {"config": config, "split": split, "revision": revision}
    place = f"{source} ({', '.join(f'{name} {value}' for name, value in given.items() if value)})"
    obstacle = refusal(source)
    try:
        with offline(obstacle is not None):
            return list(datasets.load_dataset(source, config, split=split, revision=revision).to_list())
    except (datasets.exceptions.DatasetsError, OSError) as error:
        if obstacle is None:
            obstacle = GATED if "gated" in str(error) else f"{reason(error)}; check the id and the network"
        terms = f"accept its terms at https://huggingface.co/datasets/{source} and set HF_TOKEN or run `hf auth login`"
        access = f"; {terms}" if obstacle == GATED else f"; it is gated: {terms}" if gated else ""
        raise OSError(f"{place}: {obstacle}{access}, or {otherwise}") from error
    except ValueError as error:  # an unknown config or split
        raise ValueError(f"{place}: {reason(error)}") from error


def refusal(source: str) -> str | None:
    """Why the hub does not give a data set to this user; None where it does, or where only loading can tell."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError
    from huggingface_hub.utils import httpx  # type: ignore[attr-defined]  # the httpx that this hub uses; as datasets does

    try:
        get_hf_file_metadata(hf_hub_url(source, "README.md", repo_type="dataset"), timeout=PATIENCE_SECONDS)
    except GatedRepoError:
        return GATED
    except (HfHubHTTPError, HFValidationError):
        return None
    except (httpx.HTTPError, OSError):
        return UNREACHABLE
    return None


@contextmanager
def offline(wanted: bool) -> Iterator[None]:
    """Let `datasets` look into the cache alone."""
    import datasets

    before = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = wanted or before
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before


def reason(error: BaseException) -> str:
    """The first line of an error of the loaders; of its cause where it says only that building failed."""
    from datasets.exceptions import DatasetBuildError

    while isinstance(error, DatasetBuildError) and error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
