"""Who hears how far work has come: called with how much is done and of how much."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
NamedProgress = Callable[[str, int, int], None]  # and before both, what is being done
