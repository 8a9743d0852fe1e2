"""The arms of a study: one way to decode each, as its [arm.NAME] says, with what it has from [engine] and [sampling].

Knows what may be written there; opens no engine. Arms of an engine with servers may pass arguments to theirs, or name
the address of one that runs already.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from engines.contract import NUMBER_FORMATS, NumberFormat
from engines.sampling import SMALLEST_TEMPERATURE
from engines.speculation import AUTO, DRAFTINGS, LARGEST_WINDOW, RULES, SHAPES, Speculation
from harness import catalog
from harness.toml_table import Table
from results.records import Completion

SPECULATION_KEYS = tuple(field.name for field in fields(Speculation))
FORMAT_KEYS = ("number_format", "drafter_format", "threads")
TEMPERATURES_ALLOWED = f"a list of 0 or numbers >= {SMALLEST_TEMPERATURE}, each larger than the one before"
ALGORITHM = "speculative_algorithm"
"""The server argument by which an arm may draft without a `drafter` or `drafting` of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What an arm says of its server.

    arguments: passed through, by the server's own names
    url:       of a server that runs already; None: one is started
    seeds:     whether the requests' seeds count
    """

    arguments: Mapping[str, Any]
    url: str | None
    seeds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to decode; without `speculation`, token by token, unless its server drafts.

    serving: None for an engine without servers
    """

    name: str
    speculation: Speculation | None
    number_format: NumberFormat
    drafter_format: NumberFormat | None
    threads: int
    temperatures: tuple[float, ...]
    serving: Serving | None = None

    @property
    def drafts(self) -> bool:
        """Whether it speculates."""
        return self.speculation is not None or bool(self.serving and ALGORITHM in self.serving.arguments)

    @property
    def engine_settings(self) -> dict[str, Any]:
        """What an engine is opened with; arms with equal settings share one."""
        settings: dict[str, Any] = {
            "speculation": self.speculation,
            "number_format": self.number_format,
            "drafter_format": self.drafter_format,
            "threads": self.threads,
        }
        if self.serving:
            seeds = self.serving.seeds and max(self.temperatures) > 0
            settings |= {"server": dict(self.serving.arguments), "url": self.serving.url, "seeds": seeds}
        return settings

    @property
    def identity(self) -> dict[str, Any]:
        """The same as plain values, without the address, which changes no answer."""
        settings = self.engine_settings
        settings.pop("url", None)
        return settings | {"speculation": self.speculation.settings if self.speculation else None}


def read_arms(arms: Table, engine: Table, sampling: Table, *, served: bool) -> tuple[Arm, ...]:
    """All arms in the order of the file; formats, temperatures and server arguments default to the study's.

    Args:
        served: whether the study's engine has servers
    """
    keys = [*catalog.ARM_SETTINGS, *(catalog.SERVED_SETTINGS if served else ())]
    if not arms.values:
        raise ValueError(f"{arms.path}: no arm; a study needs at least one table [arm.NAME]")
    read: dict[str, Arm] = {}
    for name, values in arms.values.items():
        own = Table(arms.path, f"arm.{name}", values, keys)
        arm = read_arm(own, name, engine, sampling)
        arm = replace(arm, serving=read_serving(own, engine)) if served else arm
        for other in read.values():
            if replace(arm, name=other.name) == other:
                raise ValueError(f"{arms.path}: [arm.{name}] has the same settings as [arm.{other.name}]")
        read[name] = arm
    return tuple(read.values())


def read_arm(arm: Table, name: str, engine: Table, sampling: Table) -> Arm:
    """One [arm.NAME]."""
    formats = {key: arm if key in arm else engine for key in FORMAT_KEYS}
    temperatures = arm if "temperatures" in arm else sampling
    rising = temperatures.rising_numbers("temperatures", TEMPERATURES_ALLOWED, zero=True)
    if any(0 < temperature < SMALLEST_TEMPERATURE for temperature in rising):
        raise temperatures.refuse("temperatures", TEMPERATURES_ALLOWED)
    drafter_format = formats["drafter_format"]
    has_drafter_format = "drafter_format" in drafter_format
    return Arm(
        name=name,
        speculation=read_speculation(arm),
        number_format=formats["number_format"].choice("number_format", NUMBER_FORMATS, "float32"),
        drafter_format=drafter_format.choice("drafter_format", NUMBER_FORMATS) if has_drafter_format else None,
        threads=formats["threads"].whole("threads", 1, 1),
        temperatures=rising,
    )


def read_serving(arm: Table, engine: Table) -> Serving:
    """What [engine] and [arm.NAME] say of the arm's server; the arm's arguments win."""
    arguments: dict[str, Any] = {}
    for table in (engine, arm):
        if "server" in table:
            given = Table(table.path, f"{table.label}.server", table.values["server"], None)
            arguments |= {key: given.plain(key) for key in given.values}
    return Serving(
        arguments=arguments,
        url=arm.text("url") if "url" in arm else None,
        seeds=engine.flag("seeds", default=True),
    )


def read_speculation(arm: Table) -> Speculation | None:
    """How the arm drafts and verifies, or None for plain decoding."""
    if "drafter" not in arm and "drafting" not in arm:
        for key in SPECULATION_KEYS:
            if key in arm:
                raise ValueError(
                    f"{arm.path}: {key!r} in [{arm.label}] needs a 'drafter' there (or drafting = 'ngram')"
                )
        return None
    readers: dict[str, Callable[[str], object]] = {
        "drafter": arm.one_or_several,
        "drafting": lambda key: arm.choice(key, DRAFTINGS),
        "window": lambda key: arm.whole_or(key, AUTO, 1),
        "shape": lambda key: arm.choice(key, SHAPES),
        "num_drafts": lambda key: arm.whole(key, 1, 1),
        "nodes": lambda key: arm.whole_or(key, AUTO, 1),
        "branches": lambda key: arm.whole(key, 0, 0),
        "draft_temperature": lambda key: arm.number(key, 0.0),
        "rule": lambda key: arm.choice(key, RULES),
        "steps": lambda key: arm.whole(key, 1, 1),
        "prefix_cache": lambda key: arm.flag(key, default=True),
        "cross_tokenizer": lambda key: arm.flag(key, default=False),
    }
    settings: dict[str, Any] = {key: read(key) for key, read in readers.items() if key in arm}
    try:
        return Speculation(**settings)
    except ValueError as error:
        raise ValueError(f"{arm.path}: [{arm.label}]: {error}") from None


def window_of(arm: Arm, answers: Iterable[Completion]) -> int:
    """Places of the arm's drafts; where the engine chooses them, as many as it ever used."""
    if not arm.drafts:
        return 0
    if arm.speculation and isinstance(arm.speculation.window, int):
        return arm.speculation.window
    rounds = [each for answer in answers for each in answer.rounds[1:]]
    # Nodes of a chain are its places; how deep a tree went is known only as far as it was accepted.
    is_chain = arm.speculation is not None and arm.speculation.shape == "chain"
    deepest = max((each.drafted if is_chain else each.accepted for each in rounds), default=0)
    return min(deepest, LARGEST_WINDOW)
