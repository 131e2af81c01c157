"""Settings as people type them: by name alone, as on the command line, or in tables, as in a TOML file.

No two sections share a name, so `{"mode": "frozen"}` and `{"training": {"mode": "frozen"}}` say the same.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any

from dprotonet.config import Config, DataConfig, from_tables, given_tables
from dprotonet.errors import UserError

_RECIPE = "recipe"
SECTIONS = tuple(item.name for item in fields(Config) if item.name != _RECIPE)
HOME = {item.name: name for name in SECTIONS for item in fields(getattr(Config(), name))}
"""The section of every setting."""


def with_settings(config: Config, settings: Mapping[str, Any]) -> Config:
    """The config with these settings given; what is implied by recipe, mode and network stays open."""
    tables: dict[str, Any] = {**given_tables(config), _RECIPE: config.recipe}
    for section, values in tables_from(settings).items():
        tables[section] = {**tables[section], **values} if section != _RECIPE else values
    return from_tables(Config, tables, where="")


def tables_from(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Tables as of a TOML file; an unknown name is an error that suggests a known one."""
    tables: dict[str, Any] = {}
    for key, value in settings.items():
        if key in SECTIONS and isinstance(value, Mapping):
            tables.setdefault(key, {}).update({name: _plain(item) for name, item in value.items()})
        elif key in HOME:
            tables.setdefault(HOME[key], {})[key] = _plain(value)
        elif key == _RECIPE:
            tables[key] = value
        else:
            raise UserError(_unknown(key))
    return tables


def names_of(settings: Mapping[str, Any]) -> set[str]:
    """What was given, by `section.key`."""
    tables = tables_from(settings)
    return {f"{section}.{key}" for section in SECTIONS for key in tables.get(section, {})}


def absolute(data: DataConfig) -> DataConfig:
    """With the folders' full paths, so that the run can be evaluated from anywhere."""
    kind, _, path = data.data.partition(":")
    if path:
        data = replace(data, data=f"{kind}:{Path(path).expanduser().resolve()}")
    if data.image_cache:
        data = replace(data, image_cache=str(Path(data.image_cache).expanduser().resolve()))
    return data


def _plain(value: Any) -> Any:
    """As TOML would give it."""
    if isinstance(value, PathLike):
        return str(value)
    if isinstance(value, Integral | Real) and not isinstance(value, int | float):  # NumPy's
        return int(value) if isinstance(value, Integral) else float(value)
    return list(value) if isinstance(value, tuple) else value


def _unknown(key: str) -> str:
    close = get_close_matches(key, [*HOME, *SECTIONS, _RECIPE], n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"unknown setting '{key}'; {hint}`dprotonet train --help` lists them all"
