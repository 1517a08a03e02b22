"""Stopping a run politely: the step is finished and saved before the process goes.

Ctrl-C and SIGTERM, which clusters send before they take a machine away, only raise a flag; the loop
looks at it between steps. A second signal interrupts at once.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import jax

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether someone has asked the run to stop.

    Attributes:
        asked: True after the first signal.
    """

    def __init__(self) -> None:
        self.asked = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Takes the signals until the end of the block, then gives them back.

        Several processes cannot save at a step of which only some know, so there, and outside a
        process's main thread, the signals keep their usual effect.
        """
        before = {}
        try:
            if jax.process_count() == 1:
                for number in SIGNALS:
                    before[number] = signal.signal(number, self._receive)
        except ValueError:  # not the main thread
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
