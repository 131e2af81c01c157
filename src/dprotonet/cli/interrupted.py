"""What to do after Ctrl-C or SIGTERM, where that depends on how far a command has come."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def if_stopped(advice: Callable[[], str]) -> Iterator[None]:
    """Ctrl-C and SIGTERM pass on, with what `advice` says then."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.add_note(advice())
        raise
