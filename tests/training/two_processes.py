"""Run by test_distributed.py under torchrun: pushes, evaluates and trains; the first process writes."""

import os
import sys
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.conftest import tiny_network, tiny_views

from dprotonet.training import score_rows
from dprotonet.training.engine import Engine, EngineSettings
from dprotonet.training.evaluation import evaluate
from dprotonet.training.phases import LearningRates, Phase
from dprotonet.training.processes import leave_group
from dprotonet.training.push import Pusher
from dprotonet.training.scores import Scoring, score_views
from dprotonet.training.views import BalancedKeys


def main(out: str) -> None:
    accelerator = Accelerator(cpu=True)
    network, views, val = tiny_network(), tiny_views(per_class=5), tiny_views("val", per_class=3)
    projection = Pusher(accelerator, images=3, batch=4)(network, views)
    predictions = evaluate(network, val, accelerator=accelerator, batch=2)
    results = {
        "vectors": network.prototypes.vectors.detach().clone(),
        "index": projection.index,
        "region": projection.region,
        "logits": predictions.logits,
        "processes": torch.tensor(accelerator.num_processes),
    }
    with tempfile.TemporaryDirectory() as folder:  # the one of each process: that of the first is used
        scoring = Scoring(accelerator, Path(folder), batch=4)
        results["scores"] = score_views(network, views, scoring).scores[:].clone()
        score_rows.IN_MEMORY = 0
        results["scores on disk"] = score_views(network, views, scoring).scores[:]
        score_rows.IN_MEMORY = 2**29
        results["left on disk"] = torch.tensor(len(os.listdir(folder)))
        accelerator.wait_for_everyone()
    # The backbone is frozen, so BatchNorm does not depend on how a batch is shared out.
    engine = Engine(
        network, views, val, accelerator, Pusher(accelerator, images=2), settings=EngineSettings(batch=6)
    )
    list(engine.run([Phase("warm", 2, LearningRates(backbone=0.0))]))
    results["trained"] = network.prototypes.vectors.detach().clone()
    # In pieces, of which the processes have different numbers: they meet at the last.
    pieces = tiny_network()
    engine = Engine(
        pieces,
        views,
        val,
        accelerator,
        Pusher(accelerator, images=2),
        settings=EngineSettings(batch=5, accumulate=2, frozen_norm=True, sampling=BalancedKeys(0)),
    )
    list(engine.run([Phase("joint", 2, LearningRates())]))
    results["pieces"] = pieces.prototypes.vectors.detach().clone()
    # Here BatchNorm learns: every process must end with the statistics that the first one saves.
    engine = Engine(
        network, views, val, accelerator, Pusher(accelerator, images=2), settings=EngineSettings(batch=6)
    )
    list(engine.run([Phase("joint", 1, LearningRates())]))
    means = torch.stack(gather_object([network.encoder.backbone.layers[1].running_mean.clone()]))
    results["running_means"] = means
    results["learned with BatchNorm"] = network.prototypes.vectors.detach().clone()
    results["learned by BatchNorm"] = network.encoder.backbone.layers[1].running_var.clone()
    if accelerator.is_main_process:
        save_file(results, out)
    leave_group()
    os._exit(0)  # a thread of gloo may outlive its group and abort the interpreter on its way out


if __name__ == "__main__":
    main(sys.argv[1])
