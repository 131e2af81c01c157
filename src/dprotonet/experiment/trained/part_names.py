"""Names of parts: what people call the place that a prototype stands for.

    part_names.json     in the run folder: a name for each prototype, who gave it, and how often it is right

Names are suggested by `parts` or given by a person. They belong to the prototypes they were made for: after
more training they are set aside, with a warning.
"""

import hashlib
import json
import logging
import string
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dprotonet.errors import UserError
from dprotonet.experiment.runs.run_folder import PrototypeRecord
from dprotonet.files import read_json, write_text

logger = logging.getLogger(__name__)

FILE = "part_names.json"
FORMAT = 1
LONGEST = 40  # letters


@dataclass(frozen=True)
class PartName:
    """What a prototype's part is called. `share` is how often the suggested part lies under its place."""

    name: str
    share: float | None = None
    given: bool = False  # by a person

    @property
    def lettered(self) -> bool:
        """A, B, C: nobody knows what it is."""
        return not self.given and self.share is None

    @property
    def words(self) -> str:
        """As sentences have it: "its beak", "its part A"."""
        return f"part {self.name}" if self.lettered else self.name


def letters(number: int) -> str:
    """A to Z, then AA, AB and so on."""
    name = ""
    while number >= 0:
        number, letter = divmod(number, 26)
        name, number = string.ascii_uppercase[letter] + name, number - 1
    return name


def checked_name(name: str, prototype: int) -> str:
    """A name that fits on a sheet."""
    tidy = " ".join(name.split())
    if not tidy:
        raise UserError(f"prototype {prototype} has an empty name; write NUMBER=NAME, such as 12=beak")
    if len(tidy) > LONGEST:
        raise UserError(
            f"the name of prototype {prototype} has {len(tidy)} letters; at most {LONGEST} fit on a sheet"
        )
    if not tidy.isprintable():
        raise UserError(f"the name of prototype {prototype} has letters that cannot be printed")
    return tidy


def read_part_names(folder: Path, records: Sequence[PrototypeRecord]) -> dict[int, PartName]:
    """The names kept in a run folder, by prototype; none where nobody asked for any."""
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        content = read_json(path)
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r}, this version reads {FORMAT}")
        if content["prototypes"] != _digest(records):
            logger.warning("%s is of other prototypes and is set aside; run dprotonet parts again", path)
            return {}
        return {_number(key, len(records)): _part_name(item) for key, item in content["names"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} is damaged or of another version ({error}); delete it, and name the parts again with "
            "dprotonet parts"
        ) from None


def write_part_names(folder: Path, names: Mapping[int, PartName], records: Sequence[PrototypeRecord]) -> None:
    """Keep the names in a run folder."""
    told = {str(number): asdict(names[number]) for number in sorted(names)}
    content = {"format": FORMAT, "prototypes": _digest(records), "names": told}
    write_text(folder / FILE, json.dumps(content, indent=1, ensure_ascii=False))


def _digest(records: Sequence[PrototypeRecord]) -> str:
    """Of what makes them these prototypes."""
    told = [[item.class_name, item.source, item.region, item.distance] for item in records]
    return hashlib.blake2b(json.dumps(told).encode(), digest_size=16).hexdigest()


def _number(key: str, count: int) -> int:
    if not (key.isascii() and key.isdigit() and int(key) < count):
        raise ValueError(f"there is no prototype {key}")
    return int(key)


def _part_name(item: dict[str, Any]) -> PartName:
    found = PartName(**item)
    share = found.share
    if not isinstance(found.name, str) or type(found.given) is not bool:
        raise TypeError("a name is not a text")
    if not found.name.strip() or len(found.name) > LONGEST or not found.name.isprintable():
        raise ValueError("a name is empty or too long")
    if share is not None and (type(share) is not float or not 0 <= share <= 1):
        raise ValueError(f"a share is {share!r}")
    return found
