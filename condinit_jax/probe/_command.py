"""The command from its arguments to a table and files, read from top to bottom."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence

import jax
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from condinit_jax.errors import UserError
from condinit_jax.probe import _outputs
from condinit_jax.probe._arguments import PROGRAM, Request, read
from condinit_jax.probe._subjects import Subject, subjects
from condinit_jax.spectra import Probe, assemble, probe_blocks
from condinit_jax.training.probing import first_examples, suitable_threads

Tell = Callable[[int, int, str], None]

INTERRUPTED = 130
"""The exit code after Ctrl-C."""

NARROWEST = 120
"""Columns of a table that is printed into a file or a pipe."""


def main(argv: Sequence[str]) -> int:
    """Probe as the arguments say.

    Args:
        argv: the command line without the program's name.

    Returns:
        The exit code: 0 done, 1 output that nobody reads, 2 a mistake in the arguments, config or
        data, 130 interrupted.
    """
    try:
        _probe(read(argv))
    except UserError as error:
        if "--debug" in argv:
            raise
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if "--debug" in argv:
            raise
        print(f"{PROGRAM}: interrupted; nothing was written", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Who read the output has gone; Python's own flush at the end must not say so.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _probe(request: Request) -> None:
    found = subjects(request)
    for summary in dict.fromkeys(subject.task.summary() for subject in found):
        print(summary, flush=True)
    names = ", ".join(f"{s.run} at step {s.step}" if s.step else s.run for s in found)
    print(f"probing {names}", flush=True)
    with _progress(len(found)) as progress:
        probe = Probe.concat(
            measured(subject, request, progress(place)) for place, subject in enumerate(found)
        )
    # Files first: who reads the table may stop reading.
    files = _outputs.write(probe, request.out) if request.out else []
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, NARROWEST))
    console.print(probe.table())
    if files:
        print(f"wrote {', '.join(file.name for file in files)} in {request.out}")


def measured(
    subject: Subject, request: Request, tell: Tell = lambda done, total, text: None
) -> Probe:
    """One model's probe."""
    tell(0, 1, f"{subject.run}: forward pass")
    examples = first_examples(subject.task, request.examples)
    params, collections = subject.load()
    recording = jax.jit(subject.task.attention_inputs)(params, collections, examples)
    blocks = assemble(recording)
    with suitable_threads(blocks, request.options["tokens"]):
        return probe_blocks(
            blocks,
            run=subject.run,
            step=subject.step,
            progress=lambda done, total, text: tell(done, total, f"{subject.run}: {text}"),
            **request.options,
        )


@contextlib.contextmanager
def _progress(count: int) -> Iterator[Callable[[int], Tell]]:
    """A bar over all models with the time left; nothing where standard error is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda place: lambda done, total, text: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=count)

        def told(place: int) -> Tell:
            return lambda done, total, text: bar.update(
                task, completed=place + done / total, description=text
            )

        yield told
