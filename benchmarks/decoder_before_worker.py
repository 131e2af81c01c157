"""The process that `decoder_before.py` starts: explains with the package of another checkout.

    python benchmarks/decoder_before_worker.py FOLDER SRC BENCHMARKS

Loads FOLDER/model.pt; for every line on stdin explains FOLDER/asked.pt, an image and its class, by `fast` and
leaves raw map, heatmap, CPU seconds and passes in FOLDER/found.pt.
"""

import sys
import time
from pathlib import Path


def main(folder: Path, paths: list[str]) -> None:
    sys.path[:0] = paths
    import torch

    from dprotonet.compat import keep_freed_memory
    from dprotonet.encoder import backbone  # noqa: F401 - has timm ready for the model's classes
    from dprotonet.interpretation.mdm import MDM
    from dprotonet.interpretation.nodes import ClassNode

    keep_freed_memory()
    torch.set_num_threads(1)
    model = torch.load(folder / "model.pt", weights_only=False)
    for line in sys.stdin:
        image, label = torch.load(folder / line.strip(), weights_only=True)
        start = time.process_time()
        (found,) = MDM(model).explain(image, ClassNode(model, [label]))
        seconds = time.process_time() - start
        torch.save((found.raw[None], found.heatmap[None], seconds, list(found.passes)), folder / "found.pt")
        print("found", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
