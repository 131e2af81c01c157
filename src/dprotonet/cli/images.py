"""Images named on the command line: the broken ones are reported and skipped, the others go on."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from dprotonet.errors import UserError
from dprotonet.launch import is_main


def named_images(asked: Sequence[Path]) -> tuple[Path, ...]:
    """The files that are meant by files, folders and patterns; what is left out is said on stderr."""
    from dprotonet.data.image_paths import image_paths

    found = image_paths(asked)
    if found.ignored and is_main():
        print(f"dprotonet: {found.ignored}", file=sys.stderr)
    if found.repeated and is_main():
        print(f"dprotonet: named more than once and taken once: {found.repeated}", file=sys.stderr)
    return found.paths


def readable(paths: Iterable[Path], read: Callable[[Path], object]) -> tuple[list[Path], dict[str, str]]:
    """Those that `read` can read, in order, and why the others cannot be read."""
    good, skipped = [], {}
    for path in paths:
        try:
            read(path)
            good.append(path)
        except UserError as error:
            skipped[str(path)] = str(error)
            print(f"dprotonet: skipped: {error}", file=sys.stderr)
    return good, skipped


def complain_if_none(found: Sequence[object], skipped: Mapping[str, str]) -> None:
    """A command that could read nothing has failed."""
    if skipped and not found:
        raise UserError(f"no image could be read; the first: {next(iter(skipped.values()))}")


def check_out(folder: Path) -> None:
    """Better to know before the work than after it."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {folder} is a file; name a folder")
