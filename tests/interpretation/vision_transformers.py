"""Small transformers of timm, of one kind or another, with random weights that are not too tame."""

from typing import Any

import torch
from torch import nn

from dprotonet.compat import import_guarded

SIZE = 64


def vit(**settings: Any) -> nn.Module:
    """A VisionTransformer of 4 × 4 patches; `settings` are timm's."""
    torch.manual_seed(0)
    model: nn.Module = import_guarded("timm.models.vision_transformer").VisionTransformer(
        **{
            "img_size": SIZE, "patch_size": 16, "embed_dim": 24, "depth": 3, "num_heads": 2,
            "num_classes": 5, **settings,
        }
    )  # fmt: skip
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model.eval()


def swin() -> nn.Module:
    """Attention in windows of 4 × 4 patches."""
    torch.manual_seed(0)
    model: nn.Module = import_guarded("timm.models.swin_transformer").SwinTransformer(
        img_size=SIZE, patch_size=4, window_size=4, embed_dim=12, depths=(2, 2), num_heads=(1, 2),
        num_classes=5,
    )  # fmt: skip
    return model.eval()


def unfused(model: nn.Module) -> nn.Module:
    """The same network, whose attention is computed step by step."""
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False
    return model
