"""Two runs served together: both look at every image, under one id, so that answers stand side by side."""

from pathlib import Path

from dprotonet.errors import UserError
from dprotonet.web.service import Service


def pair(first: Service, second: Service) -> None:
    """Both know of each other from now on, and have names that differ."""
    homes = [_home(one) for one in (first, second)]
    if None not in homes and homes[0] == homes[1]:
        raise UserError(f"{homes[0]} was given twice; give two different runs")
    first.beside, second.beside = (second,), (first,)
    first.number, second.number = 0, 1
    first.name, second.name = _told_apart(homes[0], homes[1], first.name, second.name)


def _home(service: Service) -> Path | None:
    return None if service.model.folder is None else Path(service.model.folder).resolve()


def _told_apart(first: Path | None, second: Path | None, one: str, other: str) -> tuple[str, str]:
    """The names of the folders; where they are the same, as much of their paths as tells them apart."""
    if one != other:
        return one, other
    if first is None or second is None:
        return f"{one} (1)", f"{other} (2)"
    for parts in range(2, max(len(first.parts), len(second.parts)) + 1):
        ends = ["/".join(path.parts[-parts:]) for path in (first, second)]
        if ends[0] != ends[1]:
            return ends[0], ends[1]
    raise AssertionError(f"{first} and {second} are the same")
