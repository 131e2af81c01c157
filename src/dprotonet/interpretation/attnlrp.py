"""AttnLRP (Achtibat et al., 2024): a node's value handed back through a transformer, layer by layer.

Each layer shares out what it was given among its inputs. Here this is the gradient of a network whose layers
have other backward passes: relevance is then input times gradient, so that sums, reshaping and pooling need
no rule of their own. While the network runs, in this thread alone, the functions below take the place of
torch's; nothing is changed on the model.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from dprotonet.errors import UserError
from dprotonet.interpretation.attention import SOFTMAX, AttentionExplainer, attended, direction
from dprotonet.interpretation.nodes import Node
from dprotonet.interpretation.outputs import GivenTask
from dprotonet.interpretation.returned import OutputName

_EPSILON = 1e-6
_PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm)
_MULTIPLIED = (torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)
_ELEMENTWISE = (
    functional.gelu,
    functional.silu,
    functional.relu,
    torch.relu,
    Tensor.relu,
    functional.hardswish,
    functional.elu,
    functional.leaky_relu,
    torch.tanh,
    Tensor.tanh,
)


class AttnLRP(AttentionExplainer):
    """Relevance of the pixels, summed over channels, for any network that has attention of any kind.

    `gamma` favours what agrees in linear layers, `conv_gamma` in convolutions, of which a ViT has one in
    front; 0 is the plain ε rule. Its heat is what speaks for the node; `raw` also tells what speaks against.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        gamma: float = 0.05,
        conv_gamma: float = 0.25,
        classes: Sequence[str] = (),
        task: GivenTask = None,
        output: OutputName = None,
        internal_batch_size: int = 32,
    ) -> None:
        super().__init__(
            model, classes=classes, task=task, output=output, internal_batch_size=internal_batch_size
        )
        if min(gamma, conv_gamma) < 0:
            raise UserError(f"attnlrp with gamma {gamma} and conv_gamma {conv_gamma}; they are 0 or more")
        self.gamma, self.conv_gamma = gamma, conv_gamma

    def patches(self, images: Tensor, node: Node, rows: Tensor) -> tuple[Tensor, int]:
        with RelevanceRules(self.gamma, self.conv_gamma) as rules:
            value = direction(node, images, rows)
        if not rules.attentions:
            raise UserError(
                f"{self.title} explains transformers, and no attention was seen in this network; use MDM"
            )
        (gradient,) = torch.autograd.grad(value.sum(), images)
        return (images.detach() * gradient).float().sum(dim=1), 1


class RelevanceRules(TorchFunctionMode):
    """The rules of the paper in the place of torch's functions, as backward passes.

    Linear layers and convolutions: ε or γ rule. Products of activations: half to each factor. Softmax: its
    Taylor expansion, which is its own gradient. Normalisation: the spread counts as a constant. Activation
    functions: what goes out comes in.
    """

    def __init__(self, gamma: float, conv_gamma: float) -> None:
        super().__init__()
        self.gamma, self.conv_gamma, self.attentions = gamma, conv_gamma, 0

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        arguments: tuple[Any, ...] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> Any:
        settings = settings or {}
        if function is functional.linear:
            return linear(*arguments, **settings, gamma=self.gamma)
        if function is torch.conv2d:
            return convolution(*arguments, **settings, gamma=self.conv_gamma)
        if function is functional.scaled_dot_product_attention:
            return attended(*arguments, **settings, keep=self._count, product=half_each)
        if function in _PRODUCTS:
            return half_each(*arguments, product=function)
        if function in _MULTIPLIED and _both_vary(arguments):
            return half_each(*arguments, product=function)
        if function is functional.layer_norm:
            return layer_norm(*arguments, **settings)
        if function is functional.rms_norm:
            return rms_norm(*arguments, **settings)
        if function in _ELEMENTWISE:
            return _Identity.apply(function, *arguments[:1], {**settings, **_in_place(settings)})
        answer = function(*arguments, **settings)
        if function in SOFTMAX:
            self._count(answer)
        return answer

    def _count(self, attention: Tensor) -> None:
        self.attentions += attention.ndim > 2


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, *, gamma: float) -> Tensor:
    """torch's, with the γ rule."""
    return _shared(functional.linear, input, weight, bias, gamma)


def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    gamma: float,
) -> Tensor:
    """torch's, with the γ rule."""

    def convolved(given: Tensor, kernel: Tensor, offset: Tensor | None) -> Tensor:
        return functional.conv2d(given, kernel, offset, stride, padding, dilation, groups)

    return _shared(convolved, input, weight, bias, gamma)


def half_each(
    first: Tensor, second: Tensor, *, product: Callable[[Tensor, Tensor], Tensor] = torch.matmul
) -> Tensor:
    """A product of two activations; each gets half of its relevance."""
    if _both_vary((first, second)):
        first, second = _Half.apply(first), _Half.apply(second)
    return product(first, second)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """torch's, its spread a constant: then it is linear, and dividing by it leaves relevance as it is."""
    axes = tuple(range(-len(normalized_shape), 0))
    centred = input - input.mean(dim=axes, keepdim=True)
    spread = (centred.square().mean(dim=axes, keepdim=True) + eps).sqrt().detach()
    return _scaled(centred / spread, weight, bias)


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """torch's, its spread a constant."""
    axes = tuple(range(-len(normalized_shape), 0))
    floor = torch.finfo(input.dtype).eps if eps is None else eps
    return _scaled(
        input / (input.square().mean(dim=axes, keepdim=True) + floor).sqrt().detach(), weight, None
    )


def _scaled(values: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    values = values if weight is None else values * weight
    return values if bias is None else values + bias


def _both_vary(arguments: Sequence[Any]) -> bool:
    return all(isinstance(item, Tensor) and item.requires_grad for item in arguments[:2])


def _in_place(settings: Mapping[str, Any]) -> dict[str, bool]:
    return {"inplace": False} if "inplace" in settings else {}


Linear = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def _shared(function: Linear, given: Tensor, weight: Tensor, bias: Tensor | None, gamma: float) -> Tensor:
    """The γ rule, for either sign of input and output; with γ = 0 it is the ordinary gradient."""
    return function(given, weight, bias) if gamma == 0 else _Gamma.apply(function, given, weight, bias, gamma)


class _Gamma(torch.autograd.Function):
    """Shares are in proportion to x·(w + γ w′), where w′ is w as far as x·w agrees with the output."""

    @staticmethod
    def forward(
        context: Any, function: Linear, given: Tensor, weight: Tensor, bias: Tensor | None, gamma: float
    ) -> Tensor:
        context.function, context.gamma = function, gamma
        output = function(given, weight, bias)
        context.save_for_backward(given, weight, bias, output)
        return output

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        given, weight, bias, output = context.saved_tensors
        function, gamma = context.function, context.gamma
        up, down = (weight + gamma * part for part in (weight.clamp_min(0), weight.clamp_max(0)))
        ways = ((output > 0, up, down, 1), (output < 0, down, up, -1))
        total = torch.zeros_like(given)
        for chosen, over, under, sign in ways:
            offset = None if bias is None else bias + gamma * sign * (sign * bias).clamp_min(0)
            whole = function(given.clamp_min(0), over, offset) + function(given.clamp_max(0), under, None)
            # `whole` is at least as far from zero as the output, so nothing is divided by something smaller.
            share = torch.where(chosen, gradients[0] * output / whole.where(chosen, 1.0), 0.0)
            total += torch.where(
                given > 0, _pulled(function, given, over, share), _pulled(function, given, under, share)
            )
        return None, total, None, None, None


def _pulled(function: Linear, given: Tensor, weight: Tensor, share: Tensor) -> Tensor:
    """The gradient of a linear function of what is given."""
    with torch.enable_grad():
        probe = given.detach().requires_grad_(True)
        (found,) = torch.autograd.grad(function(probe, weight, None), probe, share)
    return found


class _Identity(torch.autograd.Function):
    """An activation function: the relevance of its output is that of its input."""

    @staticmethod
    def forward(context: Any, function: Any, given: Tensor, settings: Mapping[str, Any]) -> Tensor:
        output: Tensor = function(given, **settings)
        context.save_for_backward(given, output)
        return output

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        given, output = context.saved_tensors
        steady = given + torch.where(given < 0, -_EPSILON, _EPSILON)
        # Laid out like the input: torch's BatchNorm at rest takes a gradient of another order for this one.
        return None, torch.empty_like(given).copy_(gradients[0] * output / steady), None


class _Half(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, given: Tensor) -> Tensor:
        return given.view_as(given)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        return gradients[0] / 2
