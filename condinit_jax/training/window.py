"""Figures of the steps since the last log line, left on the devices until someone needs them.

Fetching a figure waits for its step, so the loop adds figures as device arrays and fetches them at
boundaries only. A non-finite figure is found there, and the first bad step is named.
"""

import math

import jax

from condinit_jax.errors import UserError

RUN_AHEAD = 4
"""Steps that may be queued on the devices; each holds its batch in memory."""

WATCHED = {"loss": "loss", "grad_norm": "gradient", "param_norm": "parameters"}
"""Figures that must be finite, with their names for people."""

FIRST = ("loss", "accuracy")
"""Figures that people look for first."""

LAST = ("lr", "param_norm")
"""Figures of which a row gives the last value; of all others it gives the mean."""


class NonFiniteError(UserError):
    """The loss, the gradient or the parameters became NaN or infinite.

    Attributes:
        step: First step where that was so.
    """

    def __init__(self, step: int, message: str) -> None:
        self.step = step
        super().__init__(message)


def ordered(figures: dict[str, float]) -> dict[str, float]:
    """Figures in reading order, whatever order a device gave them in.

    Args:
        figures: Values by name.

    Returns:
        Those in `FIRST`, then the others by name.

    Example:
        >>> ordered({"accuracy": 0.5, "grad_norm": 1.0, "loss": 2.0})
        {'loss': 2.0, 'accuracy': 0.5, 'grad_norm': 1.0}
    """
    first = [name for name in FIRST if name in figures]
    return {name: figures[name] for name in first + sorted(figures.keys() - set(first))}


def check_finite(step: int, what: str, value: float) -> None:
    """Stops at a figure that is no number.

    Args:
        step: Where it was measured.
        what: Its name for people.
        value: The figure.

    Raises:
        NonFiniteError: If it is NaN or infinite.
    """
    if not math.isfinite(value):
        kind = "NaN" if math.isnan(value) else "infinite"
        raise NonFiniteError(step, f"{what} became {kind} at step {step}")


class Window:
    """The figures of consecutive steps.

    A window with figures that are already on the host can be written as JSON and built from it
    again without loss, so a run resumed in the middle of a window continues it.

    Args:
        figures: Figures of the first steps, as `fetch` gives them.
    """

    def __init__(self, figures: list[dict[str, float]] | None = None) -> None:
        self._host = list(figures or [])
        self._device: list[tuple[int, dict[str, jax.Array]]] = []

    def add(self, step: int, figures: dict[str, jax.Array]) -> None:
        """Adds a step's figures; waits only for the step `RUN_AHEAD` before it.

        Args:
            step: Number of the step.
            figures: Scalars by name.
        """
        self._device.append((step, figures))
        if len(self._device) > RUN_AHEAD:
            jax.block_until_ready(self._device[-1 - RUN_AHEAD][1])

    def fetch(self) -> list[dict[str, float]]:
        """Brings all figures to the host and checks them.

        Returns:
            Figures of each step in the window.

        Raises:
            NonFiniteError: If one is NaN or infinite.
        """
        waiting, self._device = self._device, []
        for step, figures in jax.device_get(waiting):
            row = {name: float(value) for name, value in figures.items()}
            for name, what in WATCHED.items():
                check_finite(step, what, row.get(name, 0.0))
            self._host.append(row)
        # A copy, because a checkpoint may be written from it after the window has gone on.
        return list(self._host)

    def close(self) -> dict[str, float]:
        """Ends the window.

        Returns:
            The mean of each figure, and the last value of those in `LAST`.

        Raises:
            NonFiniteError: If a figure is NaN or infinite.
        """
        rows = self.fetch()
        self._host = []
        means = {name: math.fsum(row[name] for row in rows) / len(rows) for name in rows[-1]}
        return ordered({**means, **{name: rows[-1][name] for name in LAST if name in means}})
