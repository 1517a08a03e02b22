"""What could not be decoded: counted once per file, and named."""

import dataclasses
from collections.abc import Iterable

NAMED = 20


class UndecodableError(Exception):
    """An example that cannot be read or decoded; the message says why, in one line."""

    @classmethod
    def of(cls, error: Exception) -> "UndecodableError":
        """Retells another error's message in one line.

        Args:
            error: what a library raised.

        Returns:
            An error to raise instead.
        """
        return cls(" ".join(str(error).split()) or type(error).__name__)


@dataclasses.dataclass
class Corrupt:
    """The unreadable examples that an iterator met so far, in this process.

    Attributes:
        names: the first of them, each with the reason, for people to read.

    Example:
        >>> corrupt = Corrupt()
        >>> corrupt.add(["a.png: truncated", "b.jpg: not an image", "a.png: truncated"])
        >>> corrupt.count, corrupt.names
        (2, ['a.png: truncated', 'b.jpg: not an image'])
    """

    names: list[str] = dataclasses.field(default_factory=list)
    _seen: set[str] = dataclasses.field(default_factory=set, repr=False)

    @property
    def count(self) -> int:
        """Number of distinct examples that could not be decoded."""
        return len(self._seen)

    def add(self, names: Iterable[str]) -> None:
        """Counts the names that are new, and lists them while the list is short.

        Args:
            names: one text per unreadable example; an example always has the same text.
        """
        for name in names:
            if name not in self._seen:
                self._seen.add(name)
                if len(self.names) < NAMED:
                    self.names.append(name)
