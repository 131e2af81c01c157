"""Convolutions that take over the batch normalisation behind them while a network is explained.

In inference a normalisation is a factor and an offset per channel, and a convolution can have both in its
weights: the values are the same up to rounding, and a pass over every feature map is saved, forwards and
backwards. Which normalisation follows which convolution is seen in the first pass, not guessed from names.
Weights stay as they are; only this thread takes the short way, so the network may answer others meanwhile.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dprotonet.interpretation.pointwise import Pointwise, is_pointwise

T = TypeVar("T")

_NORMALISATIONS = {"native_batch_norm", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit"}
_NORMALISATIONS |= {"cudnn_batch_norm", "miopen_batch_norm", "_batch_norm_no_update"}


class Pair(NamedTuple):
    """A convolution and the normalisation that alone reads what it gives."""

    convolution: nn.Conv2d
    normalisation: nn.BatchNorm2d


class Folding:
    """Of one network while it is borrowed: looks in the first pass, then folds until the context ends.

    What was seen is remembered: entered again, it folds at once.
    """

    def __init__(self, model: nn.Module | None) -> None:
        self.model, self._stack = model, ExitStack()
        self._pairs: Sequence[Pair] | None = None if model is not None else ()
        self._looking = False

    def __enter__(self) -> "Folding":
        self._looking = self._pairs is None
        if self._pairs:
            self._stack.enter_context(folded(self._pairs))
        return self

    def __exit__(self, *exception: object) -> None:
        self._looking = False
        self._stack.close()

    def through(self, ask: Callable[[], T]) -> T:
        """A pass of the network. The first that succeeds is looked at, and made again if that helps.

        Both ways round a little differently, and every image is to be asked in the same way.
        """
        if not self._looking:
            return ask()
        with seen_pairs(cast(nn.Module, self.model)) as pairs:
            answer = ask()
        self._looking, self._pairs = False, pairs
        if not pairs:
            return answer
        self._stack.enter_context(folded(pairs))
        return ask()


@contextmanager
def seen_pairs(model: nn.Module) -> Any:
    """Fills a list with the pairs of the passes that this thread makes while the context is open."""
    pairs: list[Pair] = []
    known = set(model.modules())
    made: dict[int, nn.Conv2d] = {}  # by the storage that they filled
    calls: Counter[nn.Module] = Counter()
    read: list[tuple[int, Pair]] = []
    kept: list[Tensor] = []  # so that nothing else comes to lie in their place
    thread = threading.get_ident()

    def before(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if module in known and threading.get_ident() == thread:
            calls[module] += 1
            place = _place(inputs[0]) if inputs and isinstance(inputs[0], Tensor) else None
            if place and place in made and _can_be_folded(module):
                read.append((place, Pair(made[place], cast(nn.BatchNorm2d, module))))

    def after(module: nn.Module, _inputs: object, output: object) -> None:
        ours = module in known and threading.get_ident() == thread
        if ours and _can_take(module) and isinstance(output, Tensor):
            kept.append(output)
            made[_place(output)] = cast(nn.Conv2d, module)

    handles = (
        nn.modules.module.register_module_forward_pre_hook(before),
        nn.modules.module.register_module_forward_hook(after),
    )
    try:
        with _Readers() as readers:
            yield pairs
    finally:
        for handle in handles:
            handle.remove()
    pairs += [
        pair
        for place, pair in read
        if calls[pair.convolution] == calls[pair.normalisation] == 1 and readers.only_one(place)
    ]


@contextmanager
def folded(pairs: Sequence[Pair]) -> Any:
    """Both halves of every pair take the short way in this thread while the context is open."""
    thread = threading.get_ident()
    changed: list[nn.Module] = []
    try:
        for convolution, normalisation in pairs:
            if "forward" in vars(convolution) or "forward" in vars(normalisation):
                continue  # another thread, or another library, has put its own way there
            weight, bias = folded_weights(convolution, normalisation)
            ways = (_convolving(convolution, weight, bias), _behind(normalisation))
            for module, way in zip((convolution, normalisation), ways, strict=True):
                module.forward = _in_thread(thread, way, module.forward)
                changed.append(module)
        yield
    finally:
        for module in changed:
            del module.forward


@torch.no_grad()
def folded_weights(convolution: nn.Conv2d, normalisation: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Weight (O, I, h, w) and bias (O,) of a convolution that does both."""
    mean, variance = cast(Tensor, normalisation.running_mean), cast(Tensor, normalisation.running_var)
    factor = (variance + normalisation.eps).rsqrt()
    factor = factor if normalisation.weight is None else factor * normalisation.weight
    offset = -mean if convolution.bias is None else convolution.bias - mean
    offset = offset * factor if normalisation.bias is None else offset * factor + normalisation.bias
    return convolution.weight * factor[:, None, None, None], offset


class _Readers(TorchDispatchMode):
    """Counts by which operations the values in a storage are read, in this thread."""

    def __init__(self) -> None:
        super().__init__()
        self._by: dict[int, list[str]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name != "detach":  # gives the same values on; who reads those is counted
            for value in (*args, *(kwargs or {}).values()):
                for item in value if isinstance(value, list | tuple) else (value,):
                    if isinstance(item, Tensor):
                        self._by.setdefault(_place(item), []).append(name)
        result = func(*args, **(kwargs or {}))
        if name == "convolution":
            self._by[_place(result)] = []  # whoever read what lay there before
        return result

    def only_one(self, place: int) -> bool:
        """Whether nothing but one normalisation read it."""
        names = self._by.get(place, [])
        return len(names) == 1 and names[0] in _NORMALISATIONS


def _can_take(module: nn.Module) -> bool:
    return (
        type(module).forward is nn.Conv2d.forward
        and _is_plain(module)
        and cast(nn.Conv2d, module).weight.dtype == torch.float32
    )


def _can_be_folded(module: nn.Module) -> bool:
    known = type(module).forward is nn.BatchNorm2d.forward or _has_activation(module)
    if not known or not _is_plain(module):
        return False
    normalisation = cast(nn.BatchNorm2d, module)
    return not normalisation.training and normalisation.running_var is not None


def _has_activation(module: nn.Module) -> bool:
    """timm's normalisation that is followed by an activation in the same module."""
    return isinstance(module, nn.BatchNorm2d) and type(module).__name__ == "BatchNormAct2d"


def _is_plain(module: nn.Module) -> bool:
    """Nobody listens at it, or has put an own way in its place."""
    return not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def _place(values: Tensor) -> int:
    """Where its values lie; 0 for a tensor without a storage of its own (sparse, or inside a transform)."""
    try:
        return values.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return 0


def _convolving(convolution: nn.Conv2d, weight: Tensor, bias: Tensor) -> Callable[[Tensor], Tensor]:
    quick = Pointwise(weight, bias) if is_pointwise(convolution) else None

    def convolved(images: Tensor) -> Tensor:
        single = images.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        if quick is not None and single:
            return quick(images)
        return convolution._conv_forward(images, weight, bias)

    return convolved


def _behind(normalisation: nn.BatchNorm2d) -> Callable[[Tensor], Tensor]:
    if not _has_activation(normalisation):
        return lambda values: values
    drop, act = cast(nn.Module, normalisation.drop), cast(nn.Module, normalisation.act)
    return lambda values: cast(Tensor, act(drop(values)))


def _in_thread(
    thread: int, short: Callable[[Tensor], Tensor], usual: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    return lambda values: short(values) if threading.get_ident() == thread else usual(values)
