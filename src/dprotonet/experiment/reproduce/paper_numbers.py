"""Every number of the paper's tables, by the plan that measures it again, its row, its column, its measure.

Accuracies and sensitivities of Tables 1 to 4 are per cent, as printed. Table 5 has AD and AI in per cent, of
the percentile form; the rest are shares.
"""

from collections.abc import Mapping, Sequence

Numbers = Mapping[tuple[str, str, str], float]  # row, column, measure

BACKBONES = ("ResNet50", "VGG19", "DenseNet121")
DATA_SETS = ("CUB-200-2011", "Stanford Cars", "RSNA", "iChallenge-PM")
FAITHFUL = ("AD50", "AI50", "deletion", "insertion", "DICE", "IOU", "PPV", "sensitivity")
MAP_SENSITIVITY = "map_sensitivity"


def _grid(columns: Sequence[str], rows: Mapping[str, Sequence[float]], measure: str) -> Numbers:
    return {
        (row, column, measure): value
        for row, values in rows.items()
        for column, value in zip(columns, values, strict=True)
    }


def _lines(rows: Mapping[str, Sequence[float]]) -> Numbers:
    return {
        (row, "CUB-200-2011", measure): value
        for row, values in rows.items()
        for measure, value in zip(FAITHFUL, values, strict=True)
    }


_CUB = {
    "ProtoPNet": (78.1, 76.3, 80.4),
    "NP-ProtoPNet": (71.3, 75.6, 76.2),
    "Gen-ProtoPNet": (76.5, 76.2, 78.4),
    "XProtoNet": (79.2, 77.2, 80.8),
    "DProtoNet": (80.9, 77.9, 81.3),
}
_CARS = {
    "ProtoPNet": (85.9, 87.7, 86.9),
    "NP-ProtoPNet": (83.2, 85.2, 83.6),
    "Gen-ProtoPNet": (85.6, 85.8, 84.1),
    "XProtoNet": (84.7, 87.3, 84.3),
    "DProtoNet": (86.5, 89.2, 89.3),
}
_MEDICAL = {  # RSNA, iChallenge-PM
    "ProtoPNet": (73.2, 98.0),
    "NP-ProtoPNet": (76.4, 97.25),
    "Gen-ProtoPNet": (76.9, 97.5),
    "XProtoNet": (77.1, 98.25),
    "DProtoNet": (82.2, 98.5),
}
_LESIONS = {
    "ProtoPNet": (35.5, 18.5),
    "NP-ProtoPNet": (28.1, 0.4),
    "Gen-ProtoPNet": (34.8, 3.5),
    "XProtoNet": (45.6, 3.3),
    "DProtoNet": (49.8, 19.7),
}
_BACKBONE = {  # CUB, cars, RSNA, iChallenge-PM
    "DProtoNet, ResNet50": (80.9, 86.5, 82.2, 98.5),
    "black box, ResNet50": (81.2, 86.3, 79.6, 98.75),
    "DProtoNet, VGG19": (77.9, 89.2, 79.3, 98.25),
    "black box, VGG19": (75.5, 88.6, 78.2, 98.5),
    "DProtoNet, DenseNet121": (81.3, 89.3, 80.6, 98.75),
    "black box, DenseNet121": (80.6, 89.8, 79.9, 98.5),
}
_PUSH = {
    "M = 1": (80.5, 77.5, 80.9),
    "M = 10": (80.6, 77.7, 81.1),
    "M = 20": (80.8, 77.8, 81.2),
    "M = 40": (80.9, 77.9, 81.3),
}
_RESNET50 = {
    "Grad-CAM": (27.8, 14.2, 0.134, 0.339, 0.288, 0.186, 0.292, 0.336),
    "Grad-CAM++": (67.3, 3.7, 0.078, 0.359, 0.476, 0.338, 0.465, 0.557),
    "Score-CAM": (44.5, 13.2, 0.088, 0.391, 0.409, 0.284, 0.411, 0.468),
    "Ablation-CAM": (82.4, 4.9, 0.286, 0.312, 0.231, 0.151, 0.232, 0.265),
    "ProtoPNet": (75.1, 3.2, 0.038, 0.349, 0.527, 0.373, 0.509, 0.639),
    "NP-ProtoPNet": (45.7, 11.5, 0.161, 0.271, 0.071, 0.044, 0.076, 0.075),
    "Gen-ProtoPNet": (55.2, 15.9, 0.135, 0.284, 0.287, 0.178, 0.292, 0.324),
    "XProtoNet": (76.1, 4.7, 0.121, 0.292, 0.415, 0.273, 0.403, 0.492),
    "DProtoNet": (17.5, 21.1, 0.028, 0.709, 0.548, 0.391, 0.531, 0.651),
}
_DENSENET121 = {
    "Grad-CAM": (49.3, 12.8, 0.148, 0.563, 0.319, 0.205, 0.311, 0.449),
    "Grad-CAM++": (71.3, 4.6, 0.045, 0.315, 0.521, 0.365, 0.509, 0.607),
    "Score-CAM": (37.5, 13.9, 0.091, 0.632, 0.466, 0.329, 0.461, 0.541),
    "Ablation-CAM": (89.6, 2.5, 0.127, 0.185, 0.254, 0.163, 0.254, 0.294),
    "ProtoPNet": (31.2, 16.9, 0.056, 0.631, 0.289, 0.183, 0.244, 0.519),
    "NP-ProtoPNet": (90.2, 1.4, 0.424, 0.211, 0.364, 0.232, 0.312, 0.612),
    "Gen-ProtoPNet": (60.2, 11.9, 0.161, 0.261, 0.298, 0.186, 0.298, 0.342),
    "XProtoNet": (31.8, 17.3, 0.102, 0.617, 0.397, 0.256, 0.389, 0.473),
    "DProtoNet": (15.2, 19.8, 0.041, 0.745, 0.626, 0.471, 0.619, 0.738),
}

NUMBERS: Mapping[str, Numbers] = {
    "general-cub": _grid(BACKBONES, _CUB, "accuracy"),
    "general-cars": _grid(BACKBONES, _CARS, "accuracy"),
    "medical": {
        **_grid(DATA_SETS[2:], _MEDICAL, "accuracy"),
        **_grid(DATA_SETS[2:], _LESIONS, MAP_SENSITIVITY),
    },
    "backbone": _grid(DATA_SETS, _BACKBONE, "accuracy"),
    "push": _grid(BACKBONES, _PUSH, "accuracy"),
    "interpretability-resnet50": _lines(_RESNET50),
    "interpretability-densenet121": _lines(_DENSENET121),
}
"""By the name of the plan in configs/paper."""
