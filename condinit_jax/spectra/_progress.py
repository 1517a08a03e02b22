"""What tells how far a probe is: a bar on a terminal, or the caller's own function."""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

Told = Callable[[int, int, str], None]
"""A callable that is told how many Jacobians are done, of how many, and which comes next."""


@contextlib.contextmanager
def told(progress: bool | Told, total: int) -> Iterator[Callable[[str], None]]:
    """What to call before each Jacobian with the name of it."""
    done = -1

    def tell(report: Told) -> Callable[[str], None]:
        def call(text: str) -> None:
            nonlocal done
            done += 1
            report(done, total, text)

        return call

    if not isinstance(progress, bool):
        yield tell(progress)
        progress(total, total, "")
        return
    console = Console(stderr=True)
    if not (progress and console.is_terminal):
        yield lambda text: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield tell(lambda done, _, text: bar.update(task, completed=done, description=text))
