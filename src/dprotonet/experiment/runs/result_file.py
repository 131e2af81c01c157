"""What a finished run of many came to: RUN/result.json, with the config it was trained by.

Its presence says that the run needs no more work; a result of another config is never taken for this one.
The config has every value as it was final then. A setting that it lacks is newer than the run: what the run
did there, no later version can know for sure, so the run counts as another one.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dprotonet.config import Config, by_name, tables_by_name, to_tables
from dprotonet.errors import UserError
from dprotonet.experiment.settings.recipes import final_config
from dprotonet.files import read_json, write_text

RESULT = "result.json"
_OF_SPEED = ("training.workers", "training.memory_format")  # change how fast, never what is learned


def write_result(place: Path, config: Config, found: dict[str, Any]) -> None:
    content = {"config": to_tables(final_config(config)), **found}
    write_text(place / RESULT, json.dumps(content, ensure_ascii=False, indent=1))


def read_result(place: Path, config: Config) -> dict[str, Any] | None:
    """What a finished run found; None if it is not finished. One of another config is an error."""
    try:
        result: dict[str, Any] = read_json(place / RESULT)
        trained = tables_by_name(result["config"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{place / RESULT} is damaged; remove it to evaluate the run anew") from None
    _check_same(place, trained, by_name(final_config(config)))
    return result


def _check_same(place: Path, trained: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuse a run of another config, by the first setting that tells them apart."""
    remedy = "name another --out, or remove it"
    for name in dict.fromkeys([*asked, *trained]):
        if name in _OF_SPEED:
            continue
        if name not in trained or name not in asked:
            raise UserError(f"{place} was trained by a version whose settings differ in {name}; {remedy}")
        if trained[name] != asked[name]:
            raise UserError(f"{place} was trained with another {name}; {remedy}")
