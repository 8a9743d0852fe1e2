"""`streak align --dry-run`: what an alignment would do, after every check that needs no weights.

Opens no weights, writes nothing. Knows a plan.
"""

from collections.abc import Iterator

from engines.alignment.stages import DrafterSetup, is_done
from engines.alignment.trainer import STATE_FILE
from engines.cache import DecoderConfig
from engines.compute import network_of
from harness.align_plan import Plan


def dry_lines(plan: Plan) -> Iterator[str]:
    """Sentences on texts and drafters. Raises ValueError or OSError for what the plan refuses, overlaps included."""
    config, todo = plan.config, plan.work_to_do()
    if todo.checked.refusal:
        raise ValueError(f"{config.path}: {todo.checked.refusal}")
    verifier = config.verifier
    yield f"{config.title}: verifier {verifier.path} in {verifier.number_format} on engine {verifier.engine}"
    yield f"  in {plan.work}: {'there is something already' if plan.work.exists() else 'nothing yet'}"
    prompts = f"{len(todo.checked.prompts)} prompts, {todo.checked.verdict}"
    yield f"  {prompts}, {todo.checked.dropped} left out that overlap with evaluation problems"
    for name, wanted in todo.wanted.items():
        left = todo.missing[name]
        most = sum(min(len(each.prompt_ids) + config.corpus.max_tokens, plan.verifier.room) for each in left)
        there = f"{len(left)} of {len(wanted)} texts to write, at most {most} tokens with their prompts"
        yield f"  {name}: {there if left else f'all {len(wanted)} texts are there'}"
    for setup in plan.setups:
        yield from drafter_lines(plan, setup, plan.outlines[setup.name].shape)


def drafter_lines(plan: Plan, setup: DrafterSetup, shape: DecoderConfig) -> Iterator[str]:
    """One drafter: where it begins, how it is trained, and how far it is."""
    if is_done(plan.work, setup):
        state = "done"
    elif setup.name not in [each.name for each in plan.asked]:
        state = "not asked for"
    else:
        begun = (plan.settings_file(setup).parent / STATE_FILE).is_file()
        state = "begun, goes on" if begun else "to be trained"
    layers = "" if setup.layers is None else f", of its layers {', '.join(map(str, setup.layers))}"
    yield f"{setup.name}: {state}"
    yield (
        f"  parent {setup.parent_name}{layers}; layers {shape.num_hidden_layers}, "
        f"weights in matrices {network_of(shape).matmul_parameters}, context {shape.max_position_embeddings}"
    )
    schedule, texts = setup.schedule, setup.plan
    yield (
        f"  {setup.objective_text}: {schedule.steps} steps of {schedule.accumulate * setup.batch_tokens} tokens, "
        f"{texts.anchors} windows of {texts.window} a text, {schedule.optimizer}, on {setup.device}"
    )
