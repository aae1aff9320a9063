"""When cards come free: per node the earliest time at which so many are, as the limits of running jobs promise."""

from typing import Self

import numpy as np
from numpy.typing import NDArray

NOW = -np.inf
NEVER = np.inf


class Horizon:
    """``rows[n, k]``: the time (seconds) from which node n has k whole cards free, NOW or NEVER included.

    Only whole cards are promised; a card in shared use counts once it is free. A job without a limit promises nothing.
    """

    __slots__ = ("_releases", "rows")

    def __init__(self, nodes: int, width: int) -> None:
        self.rows: NDArray[np.float64] = np.full((nodes, width + 1), NEVER)
        self._releases: list[tuple[tuple[float, int, str], ...]] = [()] * nodes

    def copy(self) -> Self:
        """An independent horizon."""
        other = object.__new__(type(self))
        other.rows = self.rows.copy()
        other._releases = self._releases[:]
        return other

    def promise(self, node: int, job: str, at: float | None, cards: int) -> None:
        """Note that a job gives back some cards of a node at a time; call :meth:`refresh` when done."""
        if at is not None:
            self._releases[node] = tuple(sorted((*self._releases[node], (at, cards, job))))

    def forget(self, node: int, job: str) -> None:
        """Drop what a job has promised on a node; call :meth:`refresh` when done."""
        self._releases[node] = tuple(release for release in self._releases[node] if release[2] != job)

    def refresh(self, node: int, free: int) -> None:
        """Work out the row of a node of which ``free`` cards are free now."""
        times = [NOW] * (free + 1)
        for at, cards, _ in self._releases[node]:
            times += [at] * cards
        width = self.rows.shape[1]
        self.rows[node] = (times + [NEVER] * width)[:width]
