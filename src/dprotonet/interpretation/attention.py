"""What a transformer attends to: attention rollout, Chefer's relevance, LeGrad.

Every attention among all the tokens of an image is seen while the network runs, whoever wrote the network and
whether it is fused or not: in this thread a fused one is computed step by step for the time being, and
nothing is changed on the model. Attention within windows (Swin) or none at all (CNNs) is refused. Tokens that
the answer reads (the class token, or all that are averaged) are found by its gradient.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dprotonet.errors import UserError
from dprotonet.interpretation.base import Explanation, Passes
from dprotonet.interpretation.borrowed import borrowed, differentiable
from dprotonet.interpretation.explainer import Explainer, Question, maps_explained
from dprotonet.interpretation.layout import Layout, layout_of
from dprotonet.interpretation.nodes import ClassNode, Node
from dprotonet.interpretation.outputs import GivenTask
from dprotonet.interpretation.returned import OutputName
from dprotonet.ops import upsample

SOFTMAX = (torch.softmax, torch.nn.functional.softmax, Tensor.softmax)
_HEADS_AND_TOKENS = 4  # axes of attention: (B, heads, N, N)


class AttentionSeen(TorchFunctionMode):
    """Keeps the attention (B, heads, N, N) of each layer, in order, as a part of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.maps: list[Tensor] = []

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        arguments: tuple[Any, ...] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> Any:
        settings = settings or {}
        if function is torch.nn.functional.scaled_dot_product_attention:
            return attended(*arguments, **settings, keep=self.keep)
        answer = function(*arguments, **settings)
        if function in SOFTMAX:
            self.keep(answer)
        return answer

    def keep(self, found: Tensor) -> None:
        """Only what is square is attention of tokens to one another."""
        if found.ndim == _HEADS_AND_TOKENS and found.shape[-1] == found.shape[-2]:
            self.maps.append(found)


def attended(  # noqa: PLR0913 - the arguments of torch's own function
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    keep: Callable[[Tensor], None],
    product: Callable[[Tensor, Tensor], Tensor] = torch.matmul,
) -> Tensor:
    """torch's fused attention, step by step."""
    if enable_gqa:
        key, value = (
            item.repeat_interleave(query.shape[-3] // item.shape[-3], dim=-3) for item in (key, value)
        )
    scores = product(query * (query.shape[-1] ** -0.5 if scale is None else scale), key.transpose(-2, -1))
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        hidden = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -torch.inf) if hidden else scores + attn_mask
    attention = scores.softmax(dim=-1)
    keep(attention)
    return product(attention, value)


class AttentionExplainer(Explainer):
    """Explains any node of a transformer by its attention; a subclass says how layers make a map."""

    def __init__(
        self,
        model: nn.Module,
        *,
        classes: Sequence[str] = (),
        task: GivenTask = None,
        output: OutputName = None,
        internal_batch_size: int = 32,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise UserError(
                f"{self.title} needs a module, whose attention it can watch, and {type(model).__name__} is "
                "none; MDM and Rise explain functions too"
            )
        super().__init__(model, classes=classes, task=task, output=output, batch=internal_batch_size)
        self.network = model

    @property
    def title(self) -> str:
        return type(self).__name__.lower()

    def explained(self, question: Question) -> list[Explanation]:
        node = watched(question.node)
        rows = torch.arange(len(question.images), device=question.images.device)
        with borrowed(self.network), borrowed(node.model), differentiable():
            found = [
                self.patches(question.images[block].detach().clone().requires_grad_(True), node, block)
                for block in rows.split(question.batch)
            ]
        size = (question.images.shape[-2], question.images.shape[-1])
        raw = torch.cat([upsample(maps.float(), size) for maps, _ in found])
        passes = Passes(found[0][1] + question.before, 1)
        return maps_explained(replace(question, node=node), raw, passes=passes, facts={"preset": self.title})

    def patches(self, images: Tensor, node: Node, rows: Tensor) -> tuple[Tensor, int]:
        """Maps of the patches (B, h, w), and how often the network was asked."""
        with AttentionSeen() as seen:
            value = direction(node, images, rows)
        layout = layout_of_tokens(seen.maps, images, self.title)
        gradients = torch.autograd.grad(value.sum(), seen.maps)
        heat = self.tokens(
            [item.detach().float() for item in seen.maps], [item.float() for item in gradients]
        )
        return layout.places(heat.unsqueeze(-1)), 1

    def tokens(self, attention: list[Tensor], gradients: list[Tensor]) -> Tensor:
        """Heat (B, N) of the tokens, of each layer's attention and its gradient, (B, heads, N, N)."""
        raise NotImplementedError


class Rollout(AttentionExplainer):
    """Attention rollout (Abnar and Zuidema, 2020): attention averaged over heads, half of it staying.

    The same for every class. Where no class token is read, as its authors have it, the map is the mean over
    the tokens that the answer reads.
    """

    def tokens(self, attention: list[Tensor], gradients: list[Tensor]) -> Tensor:
        flow = torch.eye(attention[0].shape[-1], device=attention[0].device)
        for layer in attention:
            flow = 0.5 * (layer.mean(dim=1) @ flow) + 0.5 * flow
        return read(gradients[-1], flow)


class Chefer(AttentionExplainer):
    """Generic attention relevance (Chefer et al., 2021b): R ← R + Ā R, Ā = mean over heads of (∇A ⊙ A)⁺."""

    def tokens(self, attention: list[Tensor], gradients: list[Tensor]) -> Tensor:
        relevance = torch.eye(attention[0].shape[-1], device=attention[0].device).expand(
            len(attention[0]), -1, -1
        )
        for layer, gradient in zip(attention, gradients, strict=True):
            relevance = relevance + (gradient * layer).relu().mean(dim=1) @ relevance
        return read(gradients[-1], relevance - torch.eye(relevance.shape[-1], device=relevance.device))


class LeGrad(AttentionExplainer):
    """LeGrad (Bousselham et al., 2024): how each layer's answer would change with its own attention.

    The tokens of every block are given to what follows the last one, and that answer's gradient by the
    block's attention is cut at zero and averaged over heads, over tokens that look, and over blocks.
    """

    def patches(self, images: Tensor, node: Node, rows: Tensor) -> tuple[Tensor, int]:
        with AttentionSeen() as seen, _outputs_of_lists(self.network) as lists:
            value = direction(node, images, rows)
        layout = layout_of_tokens(seen.maps, images, self.title)
        blocks, outputs = _blocks(lists, len(seen.maps), seen.maps[0].shape[-1])
        total = torch.zeros_like(seen.maps[0][:, 0, 0], dtype=torch.float32)
        for attention, output in zip(seen.maps, outputs, strict=True):
            answer = value if output is outputs[-1] else _answer_to(blocks, output, node, images, rows)
            (gradient,) = torch.autograd.grad(answer.sum(), attention, retain_graph=True)
            total += gradient.float().relu().mean(dim=(1, 2))
        return layout.places((total / len(outputs)).unsqueeze(-1)), len(outputs)


def watched(node: Node) -> Node:
    """A class at its logit, whatever its node watches; any other node as it is."""
    if not isinstance(node, ClassNode):
        return node
    return ClassNode(
        node.outputs, node.labels, probability=False, numbered_as_outputs=node.numbered_as_outputs
    )


def direction(node: Node, images: Tensor, rows: Tensor) -> Tensor:
    """The number (B,) whose gradient is asked for."""
    return node.logit(images, rows) if isinstance(node, ClassNode) else node.direction(images, rows)


def layout_of_tokens(maps: list[Tensor], images: Tensor, title: str) -> Layout:
    """How the tokens lie on the image; a UserError unless every layer attends among all of them."""
    size = (images.shape[-2], images.shape[-1])
    if not maps:
        raise UserError(f"{title} explains transformers, and no attention was seen in this network; use MDM")
    if not maps[0].requires_grad:
        raise UserError(f"{title} needs the gradient of the attention, and this network cuts it; use MDM")
    layout = None
    if all(len(item) == len(images) and item.shape[-1] == maps[0].shape[-1] for item in maps):
        layout = layout_of(maps[0][:, 0, :, :1], size, len(images))
    if layout is None:
        raise UserError(
            f"{title} needs attention among all patches of the image in every layer, and this network "
            f"attends within windows or parts of it, {tuple(maps[0].shape)} in the first; use MDM or a CAM"
        )
    return layout


def read(gradient: Tensor, flow: Tensor) -> Tensor:
    """The mean of the rows of flow (B, N, N) whose tokens the answer reads after the last attention."""
    reads = (gradient.abs().sum(dim=(1, 3)) > 0).float()  # (B, N)
    weight = reads / reads.sum(dim=1, keepdim=True).clamp_min(1)
    return torch.einsum("bq,bqk->bk", weight, flow.expand(len(weight), -1, -1))


@contextmanager
def _outputs_of_lists(model: nn.Module) -> Iterator[dict[nn.Module, list[tuple[nn.Module, Any]]]]:
    """What the members of every list of modules put out, as they run."""
    lists: dict[nn.Module, list[tuple[nn.Module, Any]]] = {
        item: [] for item in model.modules() if isinstance(item, nn.Sequential | nn.ModuleList)
    }
    handles = [
        child.register_forward_hook(lambda module, _given, output, of=of: lists[of].append((module, output)))
        for of in lists
        for child in of.children()
    ]
    try:
        yield lists
    finally:
        for handle in handles:
            handle.remove()


def _blocks(
    lists: Mapping[nn.Module, list[tuple[nn.Module, Any]]], count: int, tokens: int
) -> tuple[list[nn.Module], list[Tensor]]:
    """The list with a member for each attention, all of which put out tokens; and what they put out."""
    for seen in lists.values():
        outputs = [output for _, output in seen]
        fitting = [
            isinstance(item, Tensor) and item.ndim == 3 and item.shape[1] == tokens for item in outputs
        ]
        if len(outputs) == count and all(fitting):
            return [module for module, _ in seen], outputs
    raise UserError(f"legrad needs a list of {count} blocks with an attention each; use chefer, or MDM")


def _answer_to(blocks: list[nn.Module], tokens: Tensor, node: Node, images: Tensor, rows: Tensor) -> Tensor:
    """The node's number if the last block had put out these tokens; the blocks do not run again."""
    own = [vars(block).get("forward") for block in blocks]
    try:
        for block in blocks:
            vars(block)["forward"] = lambda *_given, **_settings: tokens
        return direction(node, images, rows)
    finally:
        for block, before in zip(blocks, own, strict=True):
            del vars(block)["forward"]
            if before is not None:
                vars(block)["forward"] = before
