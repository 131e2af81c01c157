"""Which tensor of what a model returns is its answer: outputs (B, K), one row per image.

Models return a tensor, a tuple with auxiliary heads, a dict, a dataclass or a named tuple, or these inside
one another. One that holds a single tensor of the right shape needs no name. Of several, `logits` and the
like are taken, and of a plain tuple or list the first, with a warning; otherwise the name has to be given.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor, nn

from dprotonet.errors import UserError

logger = logging.getLogger(__name__)

OutputName = str | int | None  # "logits", 1, or "heads.1": a key, a field or a place, inside one another

KNOWN = ("logits", "logits_per_image", "output", "outputs", "out", "scores", "prediction", "predictions")
"""What the answer is usually called, the surest first."""

_DEPTH = 4  # of containers inside one another
_SHOWN = 6  # tensors named in a message


class Reader:
    """Finds the answer in what a model returns, once; `output` is its name, where the user said it."""

    def __init__(self, output: OutputName = None) -> None:
        self.output = output

    def __call__(self, returned: Any, count: int) -> Tensor:
        """The answer (B, K) for `count` images; of one number per image, also squeezed ones, (B, 1)."""
        if self.output is None:
            if (rows := _as_rows(returned, count)) is not None:
                return rows
            self.output = _found(returned, count)
        named = _named(returned, str(self.output))
        if (rows := _as_rows(named, count)) is None:
            shape = _shape(named)
            raise UserError(f"output '{self.output}' is {shape} for {count} images, not (B, K); {_INSTEAD}")
        return rows


class Answering(nn.Module):
    """A module that returns one tensor of what another returns, by its name."""

    def __init__(self, module: nn.Module, output: OutputName) -> None:
        super().__init__()
        self.module, self.read = module, Reader(output)
        self.training = module.training

    def forward(self, images: Tensor) -> Tensor:
        return self.read(self.module(images), len(images))


def per_image(returned: Any, count: int) -> Any:
    """What targets of single outputs look at: a tensor or list with one entry per image, of any shape."""
    if isinstance(returned, Tensor | list) or (isinstance(returned, tuple) and len(returned) == count):
        return returned
    found = {path: part for path, part in _tensors(returned) if part.ndim > 0 and len(part) == count}
    if not found:
        return returned
    paths = [path for name in KNOWN for path in found if path.split(".")[-1] == name] or list(found)
    return found[paths[0]]


_INSTEAD = "explain a module inside it or a function of your own instead: pass it as the target"


def _found(returned: Any, count: int) -> str:
    """The name of the answer where none was given."""
    rows_of = ((path, _as_rows(tensor, count)) for path, tensor in _tensors(returned))
    found = {path: rows for path, rows in rows_of if rows is not None}
    if not found or isinstance(returned, Tensor):
        given = _described(returned)
        raise UserError(f"the model gave {given} for {count} images, not logits (B, C); {_INSTEAD}")
    if len(found) == 1:
        return next(iter(found))
    for name in KNOWN:
        if (known := next((path for path in found if path.split(".")[-1] == name), None)) is not None:
            return known
    listed = ", ".join(f"'{path}' {tuple(rows.shape)}" for path, rows in list(found.items())[:_SHOWN])
    first, second, *_ = found
    if not isinstance(returned, list | tuple) or hasattr(returned, "_asdict"):
        raise UserError(f"the model gives several outputs: {listed}; say which by output='{first}'")
    logger.warning(
        "the model gives several outputs: %s; the first counts; name another by output='%s'", listed, second
    )
    return first


def _as_rows(value: Any, count: int) -> Tensor | None:
    """(B, K) of a tensor that has a row or a number for each image; None of anything else."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return None
    if value.ndim < 2 and value.numel() == count:
        return value.reshape(count, 1)
    return value if value.ndim == 2 and len(value) == count and value.shape[1] > 0 else None


def _parts(value: Any) -> Mapping[str, Any]:
    """What a container holds, by key, field or place."""
    if isinstance(value, Mapping):
        return {str(key): part for key, part in value.items()}
    if hasattr(value, "_asdict"):
        return dict(value._asdict())
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, list | tuple):
        return {str(place): part for place, part in enumerate(value)}
    own = {} if isinstance(value, Tensor | nn.Module | type) else getattr(value, "__dict__", {})
    return {key: part for key, part in own.items() if not key.startswith("_")}


def _tensors(value: Any, path: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
    elif depth:
        for name, part in _parts(value).items():
            yield from _tensors(part, f"{path}.{name}" if path else name, depth - 1)


def _named(returned: Any, name: str) -> Any:
    """The part of that name; a key may hold dots, and what is no container may have it as an attribute."""
    parts = _parts(returned)
    if name in parts:
        return parts[name]
    head, _, rest = name.partition(".")
    if rest and head in parts:
        return _named(parts[head], rest)
    if isinstance(returned, list | tuple) and name.startswith("-") and name[1:].isdigit():
        return _named(returned, str(len(returned) - int(name[1:])))
    if not parts and hasattr(returned, name) and not isinstance(returned, Tensor):
        return getattr(returned, name)
    raise UserError(f"the model has no output '{name}'; it gives {_described(returned)}")


def _described(returned: Any) -> str:
    tensors = list(_tensors(returned))
    if not tensors or isinstance(returned, Tensor):
        return _shape(returned)
    listed = ", ".join(f"'{path}' {tuple(tensor.shape)}" for path, tensor in tensors[:_SHOWN])
    return listed + (f" and {len(tensors) - _SHOWN} more" if len(tensors) > _SHOWN else "")


def _shape(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__
