"""AttnLRP once more: relevances themselves, handed down in loops through a ViT of one layer in float64."""

import math
from collections.abc import Sequence

import pytest
import torch
from tests.interpretation.vision_transformers import unfused, vit
from torch import Tensor, nn

from dprotonet.interpretation.attnlrp import AttnLRP, RelevanceRules

PIXELS, PATCH, LABEL = 8, 4, 2
Vector = list[float]


def small(*, biased: bool = True) -> nn.Module:
    """Four patches and a class token, four channels, two heads; in float64."""
    model = vit(img_size=PIXELS, patch_size=PATCH, embed_dim=4, depth=1, mlp_ratio=2).double()
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, std=0.4)
        if not biased and (name.endswith("bias") or name in ("cls_token", "pos_embed")):
            nn.init.zeros_(parameter)
    return model


def image() -> Tensor:
    return torch.randn(1, 3, PIXELS, PIXELS, generator=torch.Generator().manual_seed(1)).double()


# ── forwards and backwards, a number at a time ───────────────────────────────────────────────────────


def linear(x: Vector, weight: Tensor, bias: Tensor) -> Vector:
    return [sum(float(weight[j, i]) * x[i] for i in range(len(x))) + float(bias[j]) for j in range(len(bias))]


def linear_back(relevance: Vector, x: Vector, weight: Tensor, bias: Tensor, gamma: float) -> Vector:
    """The γ rule: what agrees in sign with the output counts 1 + γ times."""
    found = [0.0] * len(x)
    for j, output in enumerate(linear(x, weight, bias)):
        parts = [float(weight[j, i]) * x[i] for i in range(len(x))] + [float(bias[j])]
        shares = [part * (1 + gamma * (part * output > 0)) for part in parts]
        for i in range(len(x)):
            found[i] += relevance[j] * shares[i] / sum(shares)
    return found


def norm(x: Vector, module: nn.LayerNorm) -> Vector:
    mean = sum(x) / len(x)
    spread = math.sqrt(sum((one - mean) ** 2 for one in x) / len(x) + module.eps)
    return [(x[c] - mean) / spread * float(module.weight[c]) + float(module.bias[c]) for c in range(len(x))]


def norm_back(relevance: Vector, x: Vector, module: nn.LayerNorm) -> Vector:
    """Linear, with the spread as a constant: each input's part of each output over that output."""
    mean = sum(x) / len(x)
    spread = math.sqrt(sum((one - mean) ** 2 for one in x) / len(x) + module.eps)
    output, found = norm(x, module), [0.0] * len(x)
    for c in range(len(x)):
        for i in range(len(x)):
            part = x[i] * ((i == c) - 1 / len(x)) / spread * float(module.weight[c])
            found[i] += relevance[c] * part / output[c]
    return found


def gelu(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def added_back(relevance: Vector, first: Vector, second: Vector) -> tuple[Vector, Vector]:
    """A sum shares out in proportion."""
    whole = [one + two for one, two in zip(first, second, strict=True)]
    return (
        [r * one / total for r, one, total in zip(relevance, first, whole, strict=True)],
        [r * two / total for r, two, total in zip(relevance, second, whole, strict=True)],
    )


class Attention:
    """Of one layer: query, key and value of each head from tokens, and relevance back to them."""

    def __init__(self, module: nn.Module, tokens: Sequence[Vector], gamma: float) -> None:
        self.module, self.tokens, self.gamma = module, tokens, gamma
        self.count, self.heads, self.width = len(tokens), 2, 2
        self.qkv = [linear(token, module.qkv.weight, module.qkv.bias) for token in tokens]
        self.mixed = [[0.0] * 4 for _ in tokens]
        self.weight = {}
        for h in range(self.heads):
            for q in range(self.count):
                scores = [self.score(h, q, k) for k in range(self.count)]
                total = sum(map(math.exp, scores))
                for k in range(self.count):
                    self.weight[h, q, k] = math.exp(scores[k]) / total
                    for d in range(self.width):
                        self.mixed[q][h * 2 + d] += self.weight[h, q, k] * self.at(k, 2, h, d)
        self.output = [linear(token, module.proj.weight, module.proj.bias) for token in self.mixed]

    def at(self, token: int, which: int, h: int, d: int) -> float:
        return self.qkv[token][self.place(which, h, d)]

    @staticmethod
    def place(which: int, h: int, d: int) -> int:
        return which * 4 + h * 2 + d

    def score(self, h: int, q: int, k: int) -> float:
        return sum(self.at(q, 0, h, d) * self.at(k, 1, h, d) for d in range(2)) / math.sqrt(2)

    def back(self, relevance: Sequence[Vector]) -> list[Vector]:
        """Products give half to each factor; softmax gives x·(R − s·ΣR)."""
        module, count = self.module, self.count
        mixed = [
            linear_back(relevance[t], self.mixed[t], module.proj.weight, module.proj.bias, self.gamma)
            for t in range(count)
        ]
        back = [[0.0] * 12 for _ in range(count)]
        for h in range(self.heads):
            for q in range(count):
                of_weight = [0.0] * count
                for k in range(count):
                    for d in range(2):
                        part = self.weight[h, q, k] * self.at(k, 2, h, d) / self.mixed[q][h * 2 + d]
                        share = mixed[q][h * 2 + d] * part / 2
                        of_weight[k] += share
                        back[k][self.place(2, h, d)] += share
                for k in range(count):
                    score = self.score(h, q, k)
                    of_score = score * (of_weight[k] - self.weight[h, q, k] * sum(of_weight))
                    for d in range(2):
                        part = self.at(q, 0, h, d) * self.at(k, 1, h, d) / math.sqrt(2) / score
                        back[q][self.place(0, h, d)] += of_score * part / 2
                        back[k][self.place(1, h, d)] += of_score * part / 2
        return [
            linear_back(back[t], self.tokens[t], module.qkv.weight, module.qkv.bias, self.gamma)
            for t in range(count)
        ]


def plus(first: Sequence[Vector], second: Sequence[Vector]) -> list[Vector]:
    return [[one + two for one, two in zip(*rows, strict=True)] for rows in zip(first, second, strict=True)]


def patches_of(given: Tensor) -> list[Vector]:
    return [
        given[0, :, y : y + PATCH, x : x + PATCH].flatten().tolist()
        for y in range(0, PIXELS, PATCH)
        for x in range(0, PIXELS, PATCH)
    ]


def literal(model: nn.Module, given: Tensor, *, gamma: float, conv_gamma: float) -> tuple[float, Tensor]:
    """The logit, and the relevance of the pixels (H, W)."""
    kernel, offset = model.patch_embed.proj.weight.flatten(1), model.patch_embed.proj.bias
    block, patches = model.blocks[0], patches_of(given)
    content = [model.cls_token[0, 0].tolist(), *(linear(patch, kernel, offset) for patch in patches)]
    places = model.pos_embed[0].tolist()
    tokens = plus(content, places)
    normed = [norm(token, block.norm1) for token in tokens]
    attention = Attention(block.attn, normed, gamma)
    middle = plus(tokens, attention.output)
    normed_again = [norm(token, block.norm2) for token in middle]
    first, second = block.mlp.fc1, block.mlp.fc2
    hidden = [linear(token, first.weight, first.bias) for token in normed_again]
    active = [[gelu(one) for one in token] for token in hidden]
    perceptron = [linear(token, second.weight, second.bias) for token in active]
    last = plus(middle, perceptron)
    answer = norm(last[0], model.norm)
    logits = linear(answer, model.head.weight, model.head.bias)

    relevance = [logits[LABEL] if label == LABEL else 0.0 for label in range(len(logits))]
    to_answer = linear_back(relevance, answer, model.head.weight, model.head.bias, gamma)
    to_last = [norm_back(to_answer, last[0], model.norm), *([0.0] * 4 for _ in patches)]
    pairs = [added_back(*rows) for rows in zip(to_last, middle, perceptron, strict=True)]
    through = []
    for t, (_, share) in enumerate(pairs):
        of_active = linear_back(share, active[t], second.weight, second.bias, gamma)  # and so of `hidden`
        of_normed = linear_back(of_active, normed_again[t], first.weight, first.bias, gamma)
        through.append(norm_back(of_normed, middle[t], block.norm2))
    to_middle = plus([beside for beside, _ in pairs], through)
    pairs = [added_back(*rows) for rows in zip(to_middle, tokens, attention.output, strict=True)]
    of_attention = attention.back([share for _, share in pairs])
    through = [norm_back(of_attention[t], tokens[t], block.norm1) for t in range(len(tokens))]
    to_tokens = plus([beside for beside, _ in pairs], through)

    pixels = torch.zeros(PIXELS, PIXELS, dtype=torch.float64)
    for number, patch in enumerate(patches):
        share, _ = added_back(to_tokens[number + 1], content[number + 1], places[number + 1])
        back = linear_back(share, patch, kernel, offset, conv_gamma)
        y, x = PATCH * (number // 2), PATCH * (number % 2)
        pixels[y : y + PATCH, x : x + PATCH] = torch.tensor(back).reshape(3, PATCH, PATCH).sum(dim=0)
    return logits[LABEL], pixels


@pytest.mark.parametrize(("gamma", "conv_gamma"), [(0.0, 0.0), (0.05, 0.25), (1.0, 0.0)])
def test_relevance_is_what_the_rules_say(gamma: float, conv_gamma: float) -> None:
    model, given = small(), image()
    with torch.no_grad():
        logit, expected = literal(model, given, gamma=gamma, conv_gamma=conv_gamma)
        assert float(model(given)[0, LABEL]) == pytest.approx(logit)
    (found,) = AttnLRP(model, gamma=gamma, conv_gamma=conv_gamma).explain(given, LABEL)
    assert torch.allclose(found.raw.double(), expected, rtol=1e-4, atol=1e-6 * float(expected.abs().max()))
    assert expected.abs().max() > 1e-3


# ── conservation ─────────────────────────────────────────────────────────────────────────────────────


class Absorbed(RelevanceRules):
    """Keeps what softmax turns into what, to tell how much relevance its expansion has left over."""

    def __init__(self, gamma: float = 0.0, conv_gamma: float = 0.0) -> None:
        super().__init__(gamma, conv_gamma)
        self.kept: list[Tensor] = []

    def _count(self, attention: Tensor) -> None:
        super()._count(attention)
        self.kept.append(attention)

    def by_softmax(self, logit: Tensor) -> float:
        """Σ R of the attention, less Σ R of its scores; adding a constant to the scores changes neither."""
        left = 0.0
        for weight in self.kept:
            (gradient,) = torch.autograd.grad(logit, weight, retain_graph=True)
            of_weight = weight * gradient
            of_score = weight.log() * (of_weight - weight * of_weight.sum(dim=-1, keepdim=True))
            left += float((of_weight - of_score).detach().sum())
        return left


@pytest.mark.parametrize("stepwise", [False, True])
@pytest.mark.parametrize(("gamma", "conv_gamma"), [(0.0, 0.0), (0.05, 0.25), (1.0, 3.0)])
def test_without_biases_all_of_the_logit_is_with_pixels_or_left_over_by_softmax(
    gamma: float, conv_gamma: float, stepwise: bool
) -> None:
    model = unfused(small(biased=False)) if stepwise else small(biased=False)
    with Absorbed(gamma, conv_gamma) as rules:
        logit = model(image().requires_grad_())[0, LABEL]
    left = rules.by_softmax(logit)
    (found,) = AttnLRP(model, gamma=gamma, conv_gamma=conv_gamma).explain(image(), LABEL)
    assert float(found.raw.double().sum()) + left == pytest.approx(float(logit.detach()), rel=1e-3)
    assert abs(left) < abs(float(logit.detach()))


@pytest.mark.parametrize("settings", [{}, {"qk_norm": True}, {"global_pool": "avg"}, {"init_values": 0.1}])
def test_what_the_pixels_lack_is_with_biases_and_tokens_that_are_no_patches(
    settings: dict[str, object],
) -> None:
    model, given = vit(**settings).double(), image_of(64).requires_grad_()
    absorbing = [
        parameter
        for name, parameter in model.named_parameters()
        if "bias" in name or name in ("cls_token", "pos_embed")
    ]
    model.requires_grad_(False)
    for parameter in absorbing:
        parameter.requires_grad_(True)
    with Absorbed() as rules:
        logit = model(given)[0, LABEL]
    left = rules.by_softmax(logit)
    leaves = [given, *absorbing]
    gradients = torch.autograd.grad(logit, leaves, allow_unused=True)
    shares = [
        float((leaf * g).detach().sum()) for leaf, g in zip(leaves, gradients, strict=True) if g is not None
    ]
    assert sum(shares) + left == pytest.approx(float(logit.detach()), rel=1e-3)
    assert abs(shares[0] - float(logit.detach())) > 1e-2  # so that the biases do matter here


def image_of(size: int) -> Tensor:
    return torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(1)).double()


def test_the_logit_itself_is_the_networks() -> None:
    for settings in ({}, {"init_values": 0.1}, {"qk_norm": True}):
        model, given = vit(**settings).double(), image_of(64)
        expected = vit(**settings).double()(given)
        with RelevanceRules(0.1, 0.1) as rules:
            assert torch.allclose(model(given), expected)
        assert rules.attentions == 3
