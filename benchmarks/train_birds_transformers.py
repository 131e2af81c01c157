"""Trains small transformers on the built-in birds, so that explainers of transformers can be measured.

    python benchmarks/train_birds_transformers.py --out DIR --network vit --minutes 30
    python benchmarks/train_birds_transformers.py --out DIR --network swin --minutes 20

A plain ViT of patch 16 (timm's vit_tiny with six blocks), or a Swin of 2 + 2 + 4 + 2 blocks. They learn the
labels, what a frozen EfficientNet-Lite0 with a linear discriminant answers, and, place by place, its feature
map of stride 16 and the local share of the discriminant. Images and what the teacher says of them are made
once and kept in DIR, where a run that was stopped goes on. The checkpoint of the best validation accuracy is
kept; the test accuracy is measured once, at the end. DIR/NAME.safetensors and DIR/NAME.json are the result.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from dprotonet.compat import import_guarded, keep_freed_memory
from dprotonet.data.birds import Birds
from dprotonet.encoder.backbone import load_backbone
from dprotonet.files import whole
from dprotonet.training.discriminant import ClassMoments, fisher_discriminant

PIXELS, GRID, SPECIES, BATCH = 160, 10, 12, 64
COUNTS = {"train": 500, "val": 25, "test": 50}  # images of a species
SEED = 0
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
RATE, DECAY, WARM_UP = 1.5e-3, 0.05, 0.05
CHECK_EVERY = 60.0  # seconds


class Hints(NamedTuple):
    """What the teacher says: stride-16 features (N, 112, 10, 10), local evidence (N, 12, 5, 5)."""

    features: np.ndarray
    evidence: np.ndarray


def network(name: str) -> nn.Module:
    """The network with random weights; `vit` or `swin`."""
    timm = import_guarded("timm")
    if name == "vit":
        made: nn.Module = timm.create_model(
            "vit_tiny_patch16_224", img_size=PIXELS, depth=6, num_classes=SPECIES
        )
        return made
    swin: nn.Module = import_guarded("timm.models.swin_transformer").SwinTransformer(
        img_size=PIXELS, window_size=5, embed_dim=48, depths=(2, 2, 4, 2), num_heads=(2, 4, 8, 16),
        num_classes=SPECIES, drop_path_rate=0.0,
    )  # fmt: skip
    return swin


def trained(name: str, folder: Path) -> nn.Module:
    """The network as it was trained, in evaluation mode."""
    model = network(name)
    model.load_state_dict(load_file(folder / f"{name}.safetensors"))
    return model.eval()


def normalised(images: Tensor) -> Tensor:
    """Images (N, 3, H, W) uint8 as the networks take them."""
    return (images.float() / 255 - MEAN[:, None, None]) / STD[:, None, None]


# ── images and teacher ───────────────────────────────────────────────────────────────────────────────


def drawn(split: str, folder: Path) -> np.ndarray:
    """All images of a split (N, 3, 160, 160) uint8."""
    path = folder / f"images-{split}.npy"
    if not path.exists():
        birds = Birds(species=SPECIES, per_species=COUNTS[split], split=split, seed=SEED, size=PIXELS)
        images = np.stack([birds[index].image.numpy() for index in range(len(birds))])
        with whole(path) as temporary, temporary.open("wb") as file:
            np.save(file, images)
    return np.load(path)


def labels(count: int) -> Tensor:
    return torch.arange(count) % SPECIES


@torch.no_grad()
def hints(images: np.ndarray, folder: Path) -> Hints:
    """The frozen teacher on the training images; its discriminant is found from them."""
    paths = [folder / f"hints-{part}.npy" for part in Hints._fields]
    if not all(path.exists() for path in paths):
        backbone = load_backbone("timm:tf_efficientnet_lite0:packaged", image_size=PIXELS).eval()
        kept: list[Tensor] = []
        # blocks.4 ends with the last feature map of stride 16
        backbone.trunk.blocks[4].register_forward_hook(lambda *seen: kept.append(seen[2]))
        features, deep = [], []
        for start in range(0, len(images), BATCH):
            deep.append(backbone(normalised(torch.from_numpy(images[start : start + BATCH]))).half())
            features.append(kept.pop().half())
        evidence = local_evidence(torch.cat(deep).float(), labels(len(images)))
        for path, array in zip(paths, (torch.cat(features), evidence.half()), strict=True):
            with whole(path) as temporary, temporary.open("wb") as file:
                np.save(file, array.numpy())
    return Hints(*map(np.load, paths))


def local_evidence(deep: Tensor, labels: Tensor) -> Tensor:
    """For each class and place (N, C, 5, 5), what averages to the logits of the linear discriminant."""
    moments = ClassMoments(SPECIES, deep.shape[1])
    pooled = deep.mean(dim=(-2, -1))
    moments.update(pooled, labels)
    centre, directions = fisher_discriminant(moments, count=SPECIES - 1)
    places = torch.einsum("kd,ndhw->nkhw", directions, deep - centre[:, None, None])
    means = (moments.means().float() - centre) @ directions.T  # (C, K); the space is white
    logits = torch.einsum("ck,nkhw->nchw", means, places) - means.square().sum(1)[None, :, None, None] / 2
    right = (logits.mean(dim=(-2, -1)).argmax(1) == labels).float().mean()
    print(f"teacher on training images: {right:.3f}", flush=True)
    return logits


# ── training ─────────────────────────────────────────────────────────────────────────────────────────


class Student(nn.Module):
    """The network, and linear layers that say what the teacher sees at each place."""

    def __init__(self, name: str, channels: int) -> None:
        super().__init__()
        self.name, self.network = name, network(name)
        width = 192 if name == "vit" else 4 * 48
        self.features = nn.Linear(width, channels)
        self.evidence = nn.Linear(width if name == "vit" else 2 * width, SPECIES)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, features (N, D, 10, 10) and evidence (N, C, h, w)."""
        middle, deep = self.maps(images)
        logits = self.network.forward_head(deep)
        if self.name == "vit":
            middle, deep = (self.as_map(tokens) for tokens in (middle, deep))
        found = (self.features(middle), self.evidence(deep))
        return logits, *(item.movedim(-1, 1) for item in found)

    def maps(self, images: Tensor) -> tuple[Tensor, Tensor]:
        kept: list[Tensor] = []
        middle = self.network.blocks[3] if self.name == "vit" else self.network.layers[2]
        handle = middle.register_forward_hook(lambda *seen: kept.append(seen[2]))
        deep = self.network.forward_features(images)
        handle.remove()
        return kept[0], deep

    def as_map(self, tokens: Tensor) -> Tensor:
        return tokens[:, self.network.num_prefix_tokens :].unflatten(1, (GRID, GRID))


def standardised(maps: Tensor) -> Tensor:
    """Each channel with mean 0 and variance 1 over images and places."""
    return (maps - maps.mean(dim=(0, 2, 3), keepdim=True)) / maps.std(dim=(0, 2, 3), keepdim=True)


class Run:
    """Training that can be stopped: all its state is in one file."""

    def __init__(self, name: str, folder: Path, minutes: float) -> None:
        torch.manual_seed(SEED)
        self.name, self.folder, self.limit = name, folder, 60 * minutes
        self.images = torch.from_numpy(drawn("train", folder))
        found = hints(self.images.numpy(), folder)
        self.features = standardised(torch.from_numpy(found.features).float()).half()
        evidence = torch.from_numpy(found.evidence).float()
        self.teacher = functional.softmax(evidence.mean(dim=(-2, -1)) / 4, dim=1)
        self.evidence = standardised(evidence).half()
        self.student = Student(name, self.features.shape[1])
        self.optimiser = torch.optim.AdamW(self.student.parameters(), lr=RATE, weight_decay=DECAY)
        self.elapsed, self.best, self.seen = 0.0, -1.0, 0
        self.resume()

    @property
    def state_path(self) -> Path:
        return self.folder / f"{self.name}-state.pt"

    def resume(self) -> None:
        if self.state_path.exists():
            state = torch.load(self.state_path, weights_only=True)
            self.student.load_state_dict(state["student"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.elapsed, self.best, self.seen = state["elapsed"], state["best"], state["seen"]

    def save(self) -> None:
        state = {"student": self.student.state_dict(), "optimiser": self.optimiser.state_dict()}
        with whole(self.state_path) as temporary:
            torch.save({**state, "elapsed": self.elapsed, "best": self.best, "seen": self.seen}, temporary)

    def go(self) -> None:
        checked = start = time.monotonic()
        before = self.elapsed
        while self.elapsed < self.limit:
            for chosen in torch.randperm(len(self.images)).split(BATCH):
                self.elapsed = before + time.monotonic() - start
                loss = self.step(chosen)
                if time.monotonic() - checked > CHECK_EVERY:
                    self.check(loss)
                    checked = time.monotonic()
                if self.elapsed >= self.limit:
                    break
        self.check(loss)

    def step(self, chosen: Tensor) -> float:
        self.student.train()
        rate = self.rate()
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = self.loss(chosen)
        loss.backward()
        nn.utils.clip_grad_norm_(self.student.parameters(), 1.0)
        self.optimiser.step()
        self.seen += len(chosen)
        return float(loss.detach())

    def rate(self) -> float:
        """A short warm-up, then half a cosine over the time there is."""
        done = min(self.elapsed / self.limit, 1.0)
        return RATE * min(done / WARM_UP, 1.0) * 0.5 * (1 + math.cos(math.pi * done)) + 1e-6

    def loss(self, chosen: Tensor) -> Tensor:
        """Labels, the teacher's answer, and what it sees at each place; half of the images mirrored."""
        given = (
            normalised(self.images[chosen]),
            self.features[chosen].float(),
            self.evidence[chosen].float(),
        )
        turned = torch.rand(len(chosen)) < 0.5
        images, features, evidence = (
            torch.where(turned[:, None, None, None], item.flip(-1), item) for item in given
        )
        logits, features_found, evidence_found = self.student(images)
        if evidence_found.shape[-1] != evidence.shape[-1]:
            evidence = functional.interpolate(evidence, size=evidence_found.shape[-2:], mode="bilinear")
        logits = logits.float()
        return (
            functional.cross_entropy(logits, labels(len(self.images))[chosen], label_smoothing=0.05)
            + functional.cross_entropy(logits, self.teacher[chosen])
            + functional.mse_loss(features_found.float(), features)
            + functional.mse_loss(evidence_found.float(), evidence)
        )

    def check(self, loss: float) -> None:
        right = accuracy(self.student.network, *self.split("val"))
        print(
            f"{self.name} {self.elapsed:.0f} s, {self.seen} seen, loss {loss:.3f}, val {right:.3f}",
            flush=True,
        )
        if right >= self.best:
            self.best = right
            with whole(self.folder / f"{self.name}.safetensors") as temporary:
                save_file(self.student.network.state_dict(), temporary)
        self.save()

    def split(self, split: str) -> tuple[Tensor, Tensor]:
        images = torch.from_numpy(drawn(split, self.folder))
        return images, labels(len(images))


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    model.eval()
    found = torch.cat([model(normalised(block)).argmax(1) for block in images.split(BATCH)])
    return float((found == labels).float().mean())


def result(run: Run) -> dict[str, Any]:
    """What was trained and how good it is; the test images are looked at here alone."""
    model = trained(run.name, run.folder)
    right = accuracy(model, *run.split("test"))
    count = SPECIES * COUNTS["test"]
    return {
        "benchmark": "train_birds_transformers",
        "network": run.name,
        "pixels": PIXELS,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "species": SPECIES,
        "images": {split: SPECIES * number for split, number in COUNTS.items()},
        "seed": SEED,
        "training images seen": run.seen,
        "minutes": round(run.elapsed / 60, 1),
        "threads": torch.get_num_threads(),
        "validation accuracy": run.best,
        "test accuracy": right,
        "test standard error": math.sqrt(right * (1 - right) / count),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--network", choices=("vit", "swin"), required=True)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--prepare", action="store_true", help="only draw the images and ask the teacher")
    options = parser.parse_args()
    keep_freed_memory()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.prepare:
        hints(drawn("train", options.out), options.out)
        drawn("val", options.out)
        return
    run = Run(options.network, options.out, options.minutes)
    run.go()
    found = result(run)
    (options.out / f"{options.network}.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
