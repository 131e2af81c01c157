"""docs/training.md tells what docs/results/joint-step.json has."""

import json
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
NAMES = {
    "plain timm classifier": "timm, kept",
    "the same, channels_last": "timm, kept, channels_last",
    "DProtoNet, masks": "masks",
    "DProtoNet, parts": "parts",
    "our ProtoPNet": "protopnet",
    "our black box": "blackbox",
    "CaBRNet's ProtoPNet": "cabrnet, kept",
    "plain timm classifier, as a script has it": "timm",
    "CaBRNet's ProtoPNet, as it is": "cabrnet",
    "DProtoNet, masks, `--accumulate 4`": "masks, accumulate 4",
    "… `--checkpoint-activations`": "masks, checkpoint-activations",
    "… `--mixed-precision bf16`": "masks, bf16",
    "… `--memory-format channels_first`": "masks, channels_first",
}


def test_the_table_of_a_step_is_that_of_the_measurement() -> None:
    measured = json.loads((DOCS / "results" / "joint-step.json").read_text(encoding="utf-8"))
    text = (DOCS / "training.md").read_text(encoding="utf-8")
    _, _, table = text.partition("| network | CPU s a step |")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n\n")[0].split("\n")
    ]
    told = {row[0]: [float(cell) for cell in row[1:]] for row in rows[2:]}
    assert told.keys() == NAMES.keys()
    assert measured["networks"].keys() == set(NAMES.values())
    for words, numbers in told.items():
        name = NAMES[words]
        network, plain = measured["networks"][name], measured["to_timm_kept"][name]
        other = measured["to_cabrnet_kept"][name]["time"]
        exact = [network["cpu_seconds"], plain["time"], other, network["peak_mb"], plain["memory"]]
        for number, value, half in zip(numbers, exact, (0.0051, 0.0056, 0.0056, 0.51, 0.0056), strict=True):
            assert abs(number - value) <= half, (words, number, value)
    assert f"{measured['kept_activations_mb']} MB" in text
