"""Time spent training, apart from compilation, evaluation and saving."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Wall-clock time of a run over all its sessions.

    Args:
        seconds: Wall-clock seconds of earlier sessions.
        training: Seconds of those spent on training steps.
        images: Examples trained on in those.
    """

    def __init__(self, seconds: float = 0.0, training: float = 0.0, images: int = 0) -> None:
        now = time.perf_counter()
        self._begin = now - seconds
        self._start = now - training
        self._images = images
        self._window = (training, images)
        self._window_steps = 0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves what happens inside out of the training time."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._start += time.perf_counter() - begin

    def count(self, images: int) -> None:
        """Counts one step.

        Args:
            images: Examples in it.
        """
        self._images += images
        self._window_steps += 1

    @property
    def seconds(self) -> float:
        """Wall-clock seconds since the run began, without the time between sessions."""
        return time.perf_counter() - self._begin

    @property
    def images_per_second(self) -> float:
        """Examples per second of training, from the run's begin to the last lap."""
        training, images = self._window
        return images / max(training, 1e-9)

    def lap(self) -> dict[str, float]:
        """Rates since the last lap.

        Returns:
            `images_per_second`, `steps_per_second`, and `seconds` since the run began.
        """
        training = time.perf_counter() - self._start
        elapsed = max(training - self._window[0], 1e-9)
        rates = {
            "images_per_second": (self._images - self._window[1]) / elapsed,
            "steps_per_second": self._window_steps / elapsed,
            "seconds": self.seconds,
        }
        self._window = (training, self._images)
        self._window_steps = 0
        return rates

    def state(self) -> dict[str, float]:
        """What the next session's clock needs.

        Returns:
            The constructor's arguments.
        """
        return {
            "seconds": self.seconds,
            "training": time.perf_counter() - self._start,
            "images": self._images,
        }
