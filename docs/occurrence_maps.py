"""Where do the occurrence maps of XProtoNets lie, and what are they worth there? For docs/rivals.md.

    python docs/occurrence_maps.py "from one half=runs/half=compared/half" "from 0.01=runs/rare=compared/rare"

Each NAME=RUN is an XProtoNet on the built-in birds, judged on 60 of its validation images. With =COMPARED,
the folder of its `dprotonet compare`, its test images are added: accuracy by the run's `dprotonet evaluate`,
maps by the comparison. The entries of these names in occurrence.json are replaced, others stay; of the first
two runs images/occurrence.png is drawn. Both lie beside this file.
"""

import json
import sys
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d

from dprotonet.encoder.regions import Occurrence
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.model import Model
from dprotonet.figures import comparison_grid
from dprotonet.metrics.localization import energy_share, overlap, top_share
from dprotonet.ops import unit_range, upsample

IMAGES, SHOWN, TOP = 60, 6, 0.2
MEASURES = ("deletion", "insertion", "AD", "DICE", "energy")


class Study:
    """One network on some images of the validation split."""

    def __init__(self, folder: str) -> None:
        model = Model.load(folder)
        data = build_splits(model.config.data).val
        drawn = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:IMAGES].tolist()
        self.samples = [data[index] for index in drawn]
        self.truth = torch.stack([sample.truth for sample in self.samples if sample.truth is not None])
        self.labels = torch.tensor([sample.label for sample in self.samples])
        self.network = model.prototyped
        regions = self.network.encoder.regions
        assert isinstance(regions, Occurrence)
        blocks = model.inputs([sample.image for sample in self.samples]).split(20)
        with torch.no_grad():
            shaped = torch.cat([self.network.encoder.feature_map(block) for block in blocks])
        self.maps, self.features = regions.maps(shaped), shaped[:, : regions.dimension]
        self.evidence = self.evidence_of(self.maps)
        touched = adaptive_max_pool2d(self.truth[:, None].float(), self.maps.shape[-2:])
        self.bird = touched > 0  # (N, 1, h, w)

    @torch.no_grad()
    def evidence_of(self, maps: Tensor) -> Tensor:
        """Scores (N, P) with these occurrence maps in place of the network's own."""
        regions = torch.einsum("bphw,bdhw->bpd", maps, self.features)
        return self.network.evidence_of(regions).scores

    def accuracy(self, scores: Tensor) -> float:
        logits = scores @ self.network.head.weight.detach().T
        return float((logits.argmax(dim=1) == self.labels).float().mean())

    def class_maps(self, maps: Tensor) -> Tensor:
        """The network's own map of the predicted class, (N, H, W)."""
        weight = self.network.head.weight.detach()
        said = weight[(self.evidence @ weight.T).argmax(dim=1)].clamp_min(0) * self.evidence.clamp_min(0)
        return upsample(torch.einsum("bp,bphw->bhw", said, maps), self.truth.shape[-2:])

    def strongest(self) -> Tensor:
        """The map of the prototype that says most for the predicted class, (N, H, W)."""
        weight = self.network.head.weight.detach()
        said = weight[(self.evidence @ weight.T).argmax(dim=1)] * self.evidence
        chosen = self.maps[torch.arange(len(self.maps)), said.argmax(dim=1)]
        return upsample(chosen, self.truth.shape[-2:])

    def on_and_off(self, values: Tensor) -> dict[str, float]:
        """Means over places that touch the bird, and over the others; values (N, K, h, w)."""
        bird = self.bird.expand_as(values)
        return {"on the bird": float(values[bird].mean()), "elsewhere": float(values[~bird].mean())}

    def summary(self) -> dict[str, object]:
        shown, length = self.class_maps(self.maps), self.features.norm(dim=1, keepdim=True)
        weighed = self.class_maps(self.maps * length)
        return {
            "images": len(self.samples),
            "accuracy": self.accuracy(self.evidence),
            "accuracy, maps kept on the bird only": self.accuracy(self.evidence_of(self.maps * self.bird)),
            "accuracy, maps kept elsewhere only": self.accuracy(self.evidence_of(self.maps * ~self.bird)),
            "M": self.on_and_off(self.maps),
            "|F|": self.on_and_off(length),
            "DICE": self._dice(shown),
            "energy": self._energy(shown),
            "DICE, every map scaled to [0, 1] first": self._dice(self.class_maps(_scaled(self.maps))),
            "DICE, strongest prototype alone": self._dice(self.strongest()),
            "DICE of M |F|": self._dice(weighed),
            "energy of M |F|": self._energy(weighed),
        }

    def _dice(self, maps: Tensor) -> float:
        return float(overlap(top_share(maps, TOP), self.truth).dice.nanmean())

    def _energy(self, maps: Tensor) -> float:
        return float(energy_share(unit_range(maps), self.truth).nanmean())


def _scaled(maps: Tensor) -> Tensor:
    low, high = maps.amin(dim=(-2, -1), keepdim=True), maps.amax(dim=(-2, -1), keepdim=True)
    return (maps - low) / (high - low)


def test_summary(run: Path, compared: Path) -> dict[str, object]:
    """What `dprotonet evaluate` and `dprotonet compare` found on test images."""
    evaluation = json.loads((run / "evaluation" / "test.json").read_text())
    table = json.loads((compared / "table.json").read_text())
    return {
        "accuracy": evaluation["accuracy"],
        "protocol": {name: value for name, value in table["protocol"].items() if name != "network"},
        "methods": {
            row["method"]: {name: row["measures"][name] for name in MEASURES} for row in table["rows"]
        },
    }


def rounded(value: object) -> object:
    """All numbers in it to four decimals."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    return round(value, 4) if isinstance(value, float) else value


def main(words: list[str]) -> None:
    here = Path(__file__).parent
    given = {name: places for name, *places in (word.split("=") for word in words)}
    studies = {name: Study(run) for name, (run, *_) in given.items()}
    file = here / "occurrence.json"
    content = json.loads(file.read_text()) if file.is_file() else {}
    for name, (run, *compared) in given.items():
        tested = {"test": test_summary(Path(run), Path(compared[0]))} if compared else {}
        content[name] = rounded({**studies[name].summary(), **tested})
    file.write_text(json.dumps(content, indent=1) + "\n")
    first = next(iter(studies.values()))
    columns = {}
    for name, study in list(studies.items())[:2]:
        length = study.features.norm(dim=1, keepdim=True)
        columns[f"M, {name}"] = unit_range(study.class_maps(study.maps))[:SHOWN]
        columns[f"M |F|, {name}"] = unit_range(study.class_maps(study.maps * length))[:SHOWN]
    images = [sample.image for sample in first.samples[:SHOWN]]
    sheet = comparison_grid(images, columns, truth=first.truth[:SHOWN])
    sheet.quantize(256).save(here / "images" / "occurrence.png", optimize=True)
    print(json.dumps(content, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
