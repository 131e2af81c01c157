"""metrics.jsonl as it is read again: a record for each line, checked before anything is made of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dprotonet.errors import UserError
from dprotonet.files import json_of

Record = dict[str, Any]

_WHOLE, _NUMBER, _WORD, _FLAG = (int,), (int, float), (str,), (bool,)
_FIELDS: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "EpochDone": {"phase": _WORD, "epoch": _WHOLE, "train_accuracy": _NUMBER, "val_accuracy": _NUMBER},
    "PushDone": {"epoch": _WHOLE, "val_before": _NUMBER, "val_after": _NUMBER},
    "RoundDone": {"epoch": _WHOLE, "val_accuracy": _NUMBER, "kept": _FLAG},
}
"""What records must have."""
_MAY: Mapping[str, tuple[type, ...]] = {"steps": (int, type(None)), "seconds": _NUMBER}
"""What they have in runs of this version. What else there is is not looked at."""


def read_records(path: Path) -> list[Record]:
    """All records, none where there is no file; an error by the line that is none."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.append(_checked(json_of(line)))
        except ValueError as error:
            raise UserError(f"{path} is damaged in line {number} ({error}); remove that line") from None
    return found


def kept_round(records: Sequence[Record], path: Path) -> Record:
    """The round whose model was kept; an error where none was."""
    kept = [item for item in records if item["event"] == "RoundDone" and item["kept"]]
    if not kept:
        raise UserError(f"{path} tells of no model that was kept; train again, or go on with --resume")
    return kept[-1]


def _checked(record: object) -> Record:
    if not isinstance(record, dict) or not isinstance(record.get("event"), str):
        raise ValueError("it is not an event")
    present = {name: kinds for name, kinds in _MAY.items() if name in record}
    for name, kinds in {**_FIELDS.get(record["event"], {}), **present}.items():
        if type(record.get(name)) not in kinds:
            raise ValueError(f"{name} is {str(record.get(name))[:40]!r}")
    return record
