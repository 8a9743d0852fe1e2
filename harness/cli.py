"""The `streak` command: its arguments; each command's own module is imported when it is called."""

from harness.interrupts import OneLineOnInterrupt

with OneLineOnInterrupt():
    from pathlib import Path
    from typing import Annotated, Any

    import typer
    from typer.core import TyperGroup

    from harness.commands.exits import RUNS

RECIPE = RUNS / "recipe"


class Interruptible(TyperGroup):
    """All commands: an interrupt that a command does not explain by itself is one line. typer would say nothing."""

    def make_context(self, *args: Any, **settings: Any) -> Any:
        """Read the arguments."""
        with OneLineOnInterrupt():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with OneLineOnInterrupt():
            return super().invoke(ctx)


app = typer.Typer(
    cls=Interruptible,
    help="Accuracy within a wall-clock budget: runs arms of an engine over a task, and grades what each second bought.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

StudyPath = Annotated[Path, typer.Argument(metavar="STUDY", help="Folder with a study.toml, or the file itself.")]
OutPath = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the run folders.")]
SourcePath = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Local data file, in place of the study's source.")
]
JsonPath = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all numbers here.")]
Section = Annotated[
    str | None, typer.Argument(help="tasks, engines, models, arms, drafting, shapes or rules; default: all.")
]


@app.command()
def run(
    study: StudyPath,
    out: OutPath = RUNS,
    source: SourcePath = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what each arm would be; fetch nothing.")] = False,
) -> None:
    """Generate what is missing of a study, then grade and draw it."""
    from harness.commands import run as command

    command.run(study, out, source, dry_run=dry_run)


@app.command()
def grade(study: StudyPath, out: OutPath = RUNS, source: SourcePath = None) -> None:
    """Grade a run anew, or a kept study, and redraw its figures; needs no engine."""
    from harness.commands import grade as command

    command.grade(study, out, source)


@app.command("grade-file")
def grade_file_command(
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="Rows with id, response, and what they answer.")],
    *,
    task: Annotated[str, typer.Option(metavar="TASK", help="math500, gsm8k, gpqa, humaneval or arithmetic.")],
    out: Annotated[Path, typer.Option("--out", metavar="VERDICTS.jsonl", help="Verdicts; what is there is kept.")],
    source: SourcePath = None,
    workers: Annotated[int | None, typer.Option(metavar="N", min=1, help="At once; default: all cores.")] = None,
) -> None:
    """Grade responses from anywhere; a second call grades what is missing."""
    from harness.commands import grade_file as command

    command.grade_file(task, file, out, source, workers)


@app.command()
def keep(study: StudyPath, out: OutPath = RUNS) -> None:
    """Copy a graded run beside its study.toml, to be committed."""
    from harness.commands import keep as command

    command.keep(study, out)


@app.command()
def demo(out: OutPath = RUNS) -> None:
    """Run the bundled study: vanilla and speculative decoding side by side."""
    from harness.commands import demo as command

    command.demo(out)


@app.command()
def bench(
    study: Annotated[Path | None, typer.Argument(metavar="STUDY", help="A study; default: the bundled one.")] = None,
    *,
    source: SourcePath = None,
    temperature: Annotated[float | None, typer.Option(metavar="T", help="One of the study's, not all.")] = None,
    problems: Annotated[int | None, typer.Option(metavar="N", min=1, help="The first N problems.")] = None,
    against: Annotated[
        str | None, typer.Option(metavar="ARM", help="Tau, or a round's overhead with --concurrency, over this arm's.")
    ] = None,
    json_file: JsonPath = None,
    context: Annotated[str | None, typer.Option(metavar="LIST", help="Drafters alone, against the context.")] = None,
    window: Annotated[str | None, typer.Option(metavar="LIST", help="Drafters alone, against the window.")] = None,
    concurrency: Annotated[
        str | None, typer.Option(metavar="LIST", help="Tokens/s at so many requests at once.")
    ] = None,
) -> None:
    """Time a study's arms side by side: speed-up, tau, where a round's time goes; keeps no run."""
    from harness.commands import bench as command

    command.bench(
        study,
        source,
        temperature=temperature,
        problems=problems,
        against=against,
        json_file=json_file,
        contexts=context,
        windows=window,
        concurrency=concurrency,
    )


@app.command()
def audit(
    study: Annotated[
        Path | None,
        typer.Argument(
            metavar="[STUDY]",
            help="Folder with a study.toml, or the file; default: the bundled models.",
            show_default=False,
        ),
    ] = None,
    problems: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many of the study's problems.")] = 24,
    source: SourcePath = None,
) -> None:
    """Check that speculation changes no text and no law; exit code 1 on a violation."""
    from harness.commands import audit as command

    command.audit(study, problems, source)


@app.command()
def doctor(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Engines, devices, arms, tasks, models, or studies.")
    ] = None,
) -> None:
    """Say what can run here and what is missing; exit code 1 if what is named cannot run."""
    from harness.commands import doctor as command

    command.doctor(names or [])


@app.command()
def serve(
    study: Annotated[Path | None, typer.Argument(metavar="[STUDY]", help="A study; default: the bundled one.")] = None,
    *,
    arm: Annotated[str | None, typer.Option(metavar="NAME", help="One of its arms; default: the last one.")] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the loopback.")] = 30000,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests at once.")] = 8,
    log: Annotated[Path | None, typer.Option(metavar="FILE", help="The server's output; default: a new one.")] = None,
) -> None:
    """Start a SGLang server for an arm of a study, on a GPU or the CPU, until Ctrl-C."""
    from harness.commands import serve as command

    command.serve(study, arm, port, concurrency, log)


@app.command("list")
def list_command(section: Section = None) -> None:
    """List what a study may name."""
    from harness.commands import listing

    listing.list_names(section)


@app.command()
def embedded(
    work: Annotated[Path, typer.Option(metavar="DIR", help="Where stages and model directories are kept.")] = RECIPE,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    stage_minutes: Annotated[float, typer.Option(min=0.1, help="End the stage after this; call again to go on.")] = 80,
) -> None:
    """Train the bundled models anew, in stages that can be taken up again."""
    from harness.commands import embedded as command

    command.embedded(work, threads, stage_minutes)


@app.command()
def align(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="TOML file of an alignment (docs/ALIGNMENT.md).")],
    *,
    work: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Work folder; default: align/NAME among the runs.")
    ] = None,
    out: OutPath = RUNS,
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Train this drafter; may be repeated.")] = None,
    stage_minutes: Annotated[
        float, typer.Option(min=0.1, help="End the training after this; call again to go on.")
    ] = 90,
    corpus_only: Annotated[
        bool, typer.Option("--corpus-only", help="Write the verifier's texts, train nothing.")
    ] = False,
    allow_contaminated: Annotated[
        bool, typer.Option("--allow-contaminated", help="Train on evaluation problems, and stamp what comes of it.")
    ] = False,
    publish: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Copy all checkpoints there once they are complete.")
    ] = None,
    packing: Annotated[bool, typer.Option("--packing", help="Only time packed windows against one a row.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check, and say what would be done.")] = False,
) -> None:
    """Align drafters with their verifier: texts, decontamination, training, checkpoints with a compute ledger."""
    from harness.align_plan import Limits
    from harness.commands import align as command

    limits = Limits(
        stage_seconds=60 * stage_minutes,
        only=tuple(only or ()),
        corpus_only=corpus_only,
        allow_contaminated=allow_contaminated,
    )
    command.align(config, work, out, limits, publish=publish, packing=packing, dry_run=dry_run)


@app.command()
def forecast(
    drafter: Annotated[str, typer.Argument(metavar="DRAFTER", help="embedded:NAME or a model directory.")],
    against: Annotated[str, typer.Option(metavar="VERIFIER", help="The verifier that it drafts for.")],
    *,
    task: Annotated[str, typer.Option(help="Whose problems the verifier continues.")] = "arithmetic",
    source: Annotated[str | None, typer.Option(metavar="FILE", help="The task's local data file.")] = None,
    problems: Annotated[int, typer.Option(metavar="N", min=1, help="The first N problems.")] = 24,
    temperature: Annotated[list[float] | None, typer.Option(metavar="T", help="May be repeated; 0 and 1.")] = None,
    max_tokens: Annotated[int, typer.Option(metavar="N", min=2, help="Longest answer.")] = 420,
    window: Annotated[int, typer.Option(metavar="G", min=1, help="Tokens drafted per round.")] = 16,
    shape: Annotated[str, typer.Option(help="chain, iid or tree.")] = "chain",
    num_drafts: Annotated[int | None, typer.Option(metavar="K", min=2, help="Drafts of shape iid.")] = None,
    nodes: Annotated[int | None, typer.Option(metavar="B", min=1, help="Nodes of shape tree.")] = None,
    rule: Annotated[str, typer.Option(help="walk, leviathan, or paper with a chain.")] = "walk",
    number_format: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "bfloat16",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    measure: Annotated[bool, typer.Option(help="Decode the problems with the drafter, too.")] = True,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forecast from texts of other seeds than are measured.")
    ] = False,
    json_file: JsonPath = None,
) -> None:
    """Forecast tau and speed-up from texts that the verifier writes alone; by default held against the engine."""
    from harness.commands import forecast as command

    command.forecast(
        {
            "drafter": drafter,
            "window": window,
            "shape": shape,
            "num_drafts": num_drafts,
            "nodes": nodes,
            "rule": rule,
        },
        task=task,
        options={"source": source} if source else {},
        problems=problems,
        json_file=json_file,
        verifier=against,
        temperatures=sorted(set(temperature or (0.0, 1.0))),
        max_tokens=max_tokens,
        number_format=number_format,
        threads=threads,
        measure=measure,
        fresh=fresh,
    )


def main() -> None:
    """Entry point of `streak`."""
    with OneLineOnInterrupt():
        app()
