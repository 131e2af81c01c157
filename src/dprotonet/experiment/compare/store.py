"""What was measured for an image is kept, so that a killed comparison goes on where it was.

    OUT/plan.json                        what is compared: network, images, protocol
    OUT/done/METHOD/settings.json        what decides the maps of the method
    OUT/done/METHOD/000123.npz           values, curves, overlaps, time, passes and the heatmap of one image

A folder of another plan is refused, results of a method with other settings are made anew.
"""

import json
import re
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.experiment.compare.method import Method
from dprotonet.files import read_json, remove_unfinished, whole, write_text


class Record(NamedTuple):
    """One method on one image. Maps are kept as 8-bit pictures of themselves."""

    values: Mapping[str, float]
    deletion: Tensor  # (steps + 1,)
    insertion: Tensor
    overlaps: Mapping[str, Tensor]  # (99,) each, none where there is no truth
    seconds: float
    passes: tuple[int, int]
    heatmap: Tensor  # (H, W) in [0, 1]

    @property
    def located(self) -> bool:
        """Whether there was an object to be found: no truth, or an empty one, says nothing of a map."""
        return any(not values.isnan().all() for values in self.overlaps.values())

    @property
    def flat(self) -> bool:
        """Whether the map is the same everywhere: its ranks are those of reading order."""
        return bool(self.heatmap.min() == self.heatmap.max())


@dataclass(frozen=True)
class Store:
    """The folder of one comparison."""

    folder: Path

    def open(self, plan: Mapping[str, Any], methods: list[Method]) -> None:
        """Claim the folder for this plan; what it holds of the same plan is used again."""
        path = self.folder / "plan.json"
        text = json.dumps(plan, ensure_ascii=False, indent=1)
        if path.exists() and _differences(path, plan):
            raise UserError(
                f"{self.folder} holds a comparison with another {', '.join(_differences(path, plan))}; "
                "name another --out, or remove it"
            )
        remove_unfinished(self.folder)
        write_text(path, text)
        for method in methods:
            self._open_method(method)

    def _open_method(self, method: Method) -> None:
        place = self._place(method.name)
        path, text = place / "settings.json", json.dumps(dict(method.settings), sort_keys=True, default=list)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            shutil.rmtree(place, ignore_errors=True)
            write_text(path, text)
        remove_unfinished(place)

    def _place(self, method: str) -> Path:
        plain = re.sub(r"[^\w.,=+-]", "_", method)
        if plain != method:  # two such names may become one
            plain += f"-{blake2b(method.encode(), digest_size=4).hexdigest()}"
        return self.folder / "done" / plain

    def _path(self, method: str, index: int) -> Path:
        return self._place(method) / f"{index:06d}.npz"

    def write(self, method: str, index: int, record: Record) -> None:
        arrays: dict[str, Any] = {f"value/{name}": value for name, value in record.values.items()}
        arrays |= {f"overlap/{name}": values.numpy() for name, values in record.overlaps.items()}
        arrays |= {"deletion": record.deletion.numpy(), "insertion": record.insertion.numpy()}
        arrays |= {"seconds": record.seconds, "passes": record.passes}
        arrays["heatmap"] = (record.heatmap * 255).round().to(torch.uint8).numpy()
        with whole(self._path(method, index)) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)

    def read(self, method: str, index: int) -> Record | None:
        """None where it is not there yet, or damaged: it is made anew then."""
        try:
            with np.load(self._path(method, index), allow_pickle=False) as file:
                return _record({name: file[name] for name in file.files})
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None


def _record(arrays: Mapping[str, np.ndarray]) -> Record:
    def below(prefix: str) -> dict[str, np.ndarray]:
        return {name.removeprefix(prefix): found for name, found in arrays.items() if name.startswith(prefix)}

    return Record(
        values={name: float(value) for name, value in below("value/").items()},
        deletion=torch.from_numpy(arrays["deletion"]),
        insertion=torch.from_numpy(arrays["insertion"]),
        overlaps={name: torch.from_numpy(values) for name, values in below("overlap/").items()},
        seconds=float(arrays["seconds"]),
        passes=(int(arrays["passes"][0]), int(arrays["passes"][1])),
        heatmap=torch.from_numpy(arrays["heatmap"]).float() / 255,
    )


def _differences(path: Path, plan: Mapping[str, Any]) -> list[str]:
    """Keys in which a stored plan is another one."""
    try:
        stored = read_json(path)
        if not isinstance(stored, dict):
            raise ValueError("not a plan")
    except (OSError, ValueError):
        raise UserError(f"{path} is damaged; name another --out, or remove the folder") from None
    wanted = json.loads(json.dumps(plan))
    return [key for key in wanted if stored.get(key) != wanted[key]]
