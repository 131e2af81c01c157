"""Tables in MATLAB files, read without running code from them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dprotonet.errors import UserError
from dprotonet.extras import import_extra


def read_matlab(path: Path, table: str, *, fields: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of a struct array, or of a cell array of texts (under its own name), as dictionaries."""
    values = np.atleast_1d(_variable(path, table))
    if values.dtype.names is None:
        return [{table: value} for value in values.tolist()]
    if missing := [name for name in fields if name not in values.dtype.names]:
        has = ", ".join(values.dtype.names)
        raise UserError(
            f"{path}: '{table}' lacks {', '.join(missing)} (it has {has}); use the official file of this name"
        )
    return [{name: row[name] for name in fields} for row in values]


def _variable(path: Path, table: str) -> np.ndarray:
    loadmat = import_extra("scipy.io", extra="data", needed_for=f"reading {path.name}").loadmat
    try:
        content = loadmat(path, squeeze_me=True)
    except NotImplementedError:
        raise UserError(
            f"{path} is a MATLAB file of version 7.3 (HDF5); use the official file, or save it with save -v7"
        ) from None
    except OSError:
        raise
    except Exception as error:  # a damaged file makes the parser raise almost anything
        raise UserError(f"{path} cannot be read as a MATLAB file: {error}; unpack it anew") from None
    if table not in content:
        known = ", ".join(name for name in content if not name.startswith("__")) or "nothing"
        raise UserError(f"{path} has no variable '{table}' (it has {known}); use the official file")
    return np.asarray(content[table])
