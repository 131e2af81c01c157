"""Files that are whole or not there: written under a temporary name, then renamed."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to; on success it takes the place of `path`.

    The folder is made if need be. Many processes and threads may write the same file: the last one wins.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Text in UTF-8."""
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
