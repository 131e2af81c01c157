"""Explainers of transformers: the definitions once more in loops, every kind of ViT, nothing left behind."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.interpretation.vision_transformers import SIZE, swin, unfused, vit
from torch import Tensor, nn

from contracts.explainer_subjects import State
from dprotonet.compat import import_guarded
from dprotonet.errors import UserError
from dprotonet.interpretation.attention import AttentionSeen, Chefer, LeGrad, Rollout
from dprotonet.interpretation.attnlrp import AttnLRP
from dprotonet.interpretation.explainers import EXPLAINERS
from dprotonet.ops import upsample

NAMES = ["rollout", "chefer", "legrad", "attnlrp"]
BY_ATTENTION = NAMES[:3]
LABELS = [3, 1]
KINDS: dict[str, dict[str, Any]] = {
    "class token": {},
    "registers": {"reg_tokens": 4},
    "average": {"global_pool": "avg", "class_token": False},
    "average beside a class token": {"global_pool": "avg"},
    "attention pooling": {"global_pool": "map", "class_token": False},
    "layer scale": {"init_values": 0.1},
    "normalised queries": {"qk_norm": True},
}


def images(count: int = 2, size: tuple[int, int] = (SIZE, SIZE)) -> Tensor:
    return torch.randn(count, 3, *size, generator=torch.Generator().manual_seed(1))


def raw(name: str, model: nn.Module, given: Tensor | None = None, labels: Any = LABELS) -> Tensor:
    found = EXPLAINERS[name].make(model).explain(images() if given is None else given, labels)
    return torch.stack([item.raw for item in found])


# ── the definitions, in loops over one layer ─────────────────────────────────────────────────────────


class OneLayer:
    """A ViT of one block in float64: attention[h][q][k] of an image, and its gradient by differences."""

    def __init__(self, **settings: Any) -> None:
        self.model = unfused(vit(depth=1, embed_dim=8, **settings)).double()
        self.given = images(1).double()
        self.label = 2
        self.heads, self.shift = 2, torch.zeros(())
        self.attention = self.forward()[1]
        self.tokens = self.attention.shape[-1]

    @torch.no_grad()
    def forward(self) -> tuple[float, Tensor]:
        """The logit and the attention, after `shift` was added to it."""
        kept = []

        def shifted(_module: nn.Module, given: tuple[Tensor]) -> Tensor:
            kept.append(given[0][0] + self.shift)
            return kept[0][None]

        handle = self.model.blocks[0].attn.attn_drop.register_forward_pre_hook(shifted)
        try:
            return float(self.model(self.given)[0, self.label]), kept[0]
        finally:
            handle.remove()

    def gradient(self, h: int, q: int, k: int) -> float:
        """Central differences of the logit by one weight of the attention."""
        values = []
        for step in (1e-5, -1e-5):
            self.shift = torch.zeros_like(self.attention)
            self.shift[h, q, k] = step
            values.append(self.forward()[0])
        self.shift = torch.zeros(())
        return (values[0] - values[1]) / 2e-5

    def looking(self) -> list[int]:
        """The tokens that the answer is read from."""
        if self.model.global_pool == "token":
            return [0]
        return list(range(self.model.num_prefix_tokens, self.tokens))

    def seen_by(self, value: Callable[[int, int], float]) -> Tensor:
        """Of each patch the mean over looking tokens of value(q, k), laid out as a map."""
        looking = self.looking()
        patches = range(self.model.num_prefix_tokens, self.tokens)
        heat = [sum(value(q, k) for q in looking) / len(looking) for k in patches]
        return upsample(torch.tensor(heat, dtype=torch.float64).reshape(1, 4, 4), (SIZE, SIZE))


@pytest.fixture(params=["class token", "registers", "average"])
def one(request: pytest.FixtureRequest) -> OneLayer:
    return OneLayer(**KINDS[request.param])


def heads_mean(one: OneLayer, value: Callable[[int], float]) -> float:
    return sum(value(h) for h in range(one.heads)) / one.heads


def test_rollout_is_attention_and_itself_by_halves(one: OneLayer) -> None:
    def value(q: int, k: int) -> float:
        return 0.5 * heads_mean(one, lambda h: float(one.attention[h, q, k])) + 0.5 * (q == k)

    found = raw("rollout", one.model, one.given, one.label)
    assert torch.allclose(found.double(), one.seen_by(value), rtol=1e-5, atol=1e-7)


def test_chefers_relevance_is_positive_gradient_times_attention(one: OneLayer) -> None:
    def value(q: int, k: int) -> float:
        return heads_mean(one, lambda h: max(0.0, one.gradient(h, q, k) * float(one.attention[h, q, k])))

    found = raw("chefer", one.model, one.given, one.label)
    assert found.max() > 0
    assert torch.allclose(found.double(), one.seen_by(value), rtol=1e-4, atol=1e-7)


def test_legrad_is_the_positive_gradient_over_all_tokens(one: OneLayer) -> None:
    def value(_q: int, k: int) -> float:
        total = sum(max(0.0, one.gradient(h, q, k)) for h in range(one.heads) for q in one.looking())
        return total / one.heads / one.tokens

    found = raw("legrad", one.model, one.given, one.label)
    assert found.max() > 0
    assert torch.allclose(found.double(), one.seen_by(value), rtol=1e-4, atol=1e-7)


# ── several layers ───────────────────────────────────────────────────────────────────────────────────


def attention_and_gradients(model: nn.Module, given: Tensor, label: int) -> list[tuple[Tensor, Tensor]]:
    """Of each layer (heads, N, N), by hooks, as the authors' code has them."""
    kept: list[Tensor] = []
    handles = [
        block.attn.attn_drop.register_forward_pre_hook(lambda _module, inputs: kept.append(inputs[0]))
        for block in model.blocks
    ]
    value = unfused(model)(given)[0, label]
    for handle in handles:
        handle.remove()
    return [
        (one[0].detach(), two[0]) for one, two in zip(kept, torch.autograd.grad(value, kept), strict=True)
    ]


def test_layers_are_multiplied_by_rollout_and_added_up_by_chefer() -> None:
    model = vit()
    flow = relevance = torch.eye(17)
    for attention, gradient in attention_and_gradients(model, images(1), 3):
        mixed = attention.mean(dim=0) + torch.eye(17)
        flow = (mixed / mixed.sum(dim=-1, keepdim=True)) @ flow
        relevance = relevance + (gradient * attention).clamp_min(0).mean(dim=0) @ relevance
    for name, expected in (("rollout", flow), ("chefer", relevance)):
        heat = upsample(expected[0, 1:].reshape(1, 4, 4), (SIZE, SIZE))
        assert torch.allclose(raw(name, vit(), images(1), 3), heat, rtol=1e-4, atol=1e-6)


def test_legrad_asks_every_block_by_itself() -> None:
    """The sum over networks that are cut off after the block, each with the head of the whole."""
    model, total = vit(), torch.zeros(16)
    for depth in (1, 2, 3):
        cut = vit()
        cut.blocks = cut.blocks[:depth]
        gradient = attention_and_gradients(cut, images(1), 3)[-1][1]
        total += gradient.clamp_min(0).mean(dim=(0, 1))[1:]
    heat = upsample((total / 3).reshape(1, 4, 4), (SIZE, SIZE))
    assert torch.allclose(raw("legrad", model, images(1), 3), heat, rtol=1e-4, atol=1e-9)
    (found,) = EXPLAINERS["legrad"].make(model).explain(images(1))
    assert found.passes == (4, 1)  # one to find the class, then one for every block


# ── any vision transformer ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_fused_or_not_the_map_is_the_same(name: str, kind: str) -> None:
    fused, stepwise = vit(**KINDS[kind]), unfused(vit(**KINDS[kind]))
    first, second = raw(name, fused), raw(name, stepwise)
    assert first.shape == (2, SIZE, SIZE)
    assert torch.isfinite(first).all()
    assert (first.amax(dim=(1, 2)) > first.amin(dim=(1, 2))).all()
    assert torch.allclose(first, second, rtol=1e-3, atol=1e-5 * float(first.abs().max()))


@pytest.mark.parametrize("name", NAMES)
def test_patches_lie_on_the_image_as_they_were_cut(name: str) -> None:
    model = vit(img_size=(SIZE, 2 * SIZE))
    assert raw(name, model, images(2, (SIZE, 2 * SIZE))).shape == (2, SIZE, 2 * SIZE)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["class token", "average"])
def test_the_model_comes_back_as_it_was(name: str, kind: str) -> None:
    model = vit(**KINDS[kind]).train()
    model.blocks[1].attn.fused_attn = False
    model.blocks[0].requires_grad_(False)
    model.head.weight.grad = torch.ones_like(model.head.weight)
    before, flags = State.of(model), [block.attn.fused_attn for block in model.blocks]
    raw(name, model)
    before.assert_same(model)
    assert [block.attn.fused_attn for block in model.blocks] == flags
    assert not any("forward" in vars(module) for module in model.modules())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("passes", [0, 1])
def test_also_after_an_interruption(name: str, passes: int) -> None:
    model, seen = vit(), []

    def interrupt(*_arguments: object) -> None:
        seen.append(None)
        if len(seen) > passes:
            raise KeyboardInterrupt

    model.head.register_forward_hook(interrupt)
    before, expected = State.of(model), vit()(images())
    if passes and name != "legrad":
        raw(name, model)  # asks only once
    else:
        with pytest.raises(KeyboardInterrupt):
            raw(name, model)
    before.assert_same(model)
    assert not any("forward" in vars(module) for module in model.modules())
    model.head._forward_hooks.clear()
    assert torch.equal(model(images()), expected)


def test_a_block_with_a_forward_of_its_own_keeps_it() -> None:
    model = vit()
    own = model.blocks[1].forward
    model.blocks[1].forward = lambda given, **settings: own(given, **settings)
    mine = vars(model.blocks[1])["forward"]
    raw("legrad", model)
    assert vars(model.blocks[1])["forward"] is mine


def test_masked_and_causal_attention_is_torchs_own() -> None:
    query, key, value = torch.randn(3, 2, 4, 6, 8, generator=torch.Generator().manual_seed(0)).unbind()
    mask = torch.rand(6, 6, generator=torch.Generator().manual_seed(1)) > 0.3
    mask |= torch.eye(6, dtype=torch.bool)
    ways: list[dict[str, Any]] = [
        {"attn_mask": mask},
        {"attn_mask": mask * 0.7},
        {"is_causal": True},
        {"scale": 0.3},
    ]
    for way in ways:
        expected = nn.functional.scaled_dot_product_attention(query, key, value, **way)
        with AttentionSeen() as seen:
            found = nn.functional.scaled_dot_product_attention(query, key, value, **way)
        assert torch.allclose(found, expected, atol=1e-6)
        assert len(seen.maps) == 1


# ── what cannot be explained so ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", BY_ATTENTION)
def test_attention_in_windows_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"attends within windows or parts of it.*use MDM or a CAM"):
        raw(name, swin())


def test_relevance_needs_no_map_of_tokens() -> None:
    found = raw("attnlrp", swin())
    assert found.shape == (2, SIZE, SIZE)
    assert found.abs().amax(dim=(1, 2)).min() > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_network_without_attention_is_refused(name: str) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)
    )
    with pytest.raises(UserError, match=f"{name} explains transformers, and no attention was seen.*use MDM"):
        raw(name, model)
    with pytest.raises(UserError, match="needs a module, whose attention it can watch, and function is none"):
        EXPLAINERS[name].make(lambda given: given.flatten(1))


class OfTorch(nn.Module):
    """Attention inside torch's own module."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, 8, 16, stride=16), nn.Linear(8, 5)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, given: Tensor) -> Tensor:
        tokens = self.patches(given).flatten(2).mT
        return self.head((tokens + self.attention(tokens, tokens, tokens)[0]).mean(dim=1))


@pytest.mark.parametrize("name", NAMES)
def test_attention_that_is_not_seen_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="no attention was seen in this network"):
        raw(name, OfTorch().eval())


def test_of_a_single_output_class_0_is_what_lowers_it() -> None:
    model = vit(num_classes=1)
    for_it, against_it = (raw("attnlrp", model, labels=label) for label in (1, 0))
    assert torch.allclose(for_it, -against_it, atol=1e-6 * float(for_it.abs().max()))
    for name in ("chefer", "legrad"):
        assert (raw(name, model, labels=1) - raw(name, model, labels=0)).abs().max() > 0


def test_settings_that_make_no_sense() -> None:
    with pytest.raises(UserError, match=r"gamma -1 and conv_gamma 0\.25; they are 0 or more"):
        AttnLRP(vit(), gamma=-1)


def test_classes_have_the_names_of_the_table() -> None:
    for kind, name in ((Rollout, "rollout"), (Chefer, "chefer"), (LeGrad, "legrad"), (AttnLRP, "attnlrp")):
        assert kind(vit()).title == name
        assert type(EXPLAINERS[name].make(vit())) is kind


def test_grad_cam_finds_the_tokens_by_itself() -> None:
    """The layer whose patches the class token reads last: the keys and values of the last block."""
    package, model = import_guarded("pytorch_grad_cam"), vit()
    with package.GradCAM(
        model=model,
        target_layers=[model.blocks[-1].attn.qkv],
        reshape_transform=lambda tokens: tokens[:, 1:].unflatten(1, (4, 4)).permute(0, 3, 1, 2),
    ) as usual:
        targets = [lambda scores, label=label: scores[label] for label in LABELS]
        expected = torch.from_numpy(usual(input_tensor=images().requires_grad_(), targets=targets))
    assert torch.allclose(raw("gradcam", model), expected, atol=1e-4)
