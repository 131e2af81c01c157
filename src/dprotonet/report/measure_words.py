"""What each measure of heatmaps means, in a sentence for people who have not read the papers."""

import re

PLACES = ("DICE", "IOU", "PPV", "sensitivity", "energy", "pointing", "part")

_MEANING = {
    "deletion": "mean probability of the class while the marked pixels are removed first",
    "insertion": "mean probability of the class while the marked pixels are put back first",
    "AD": "average drop of the probability, in per cent, when only the marked pixels stay bright",
    "AI": "per cent of the images whose probability rises when only the marked pixels stay bright",
    "AG": "average gain of the probability, in per cent of what there was to gain",
    "DICE": "overlap of the marked pixels with the object, 1 being the same area",
    "IOU": "shared area of marked pixels and object, as a share of both together",
    "PPV": "share of the marked pixels that lie on the object",
    "sensitivity": "share of the object that is marked",
    "energy": "share of the heat that lies on the object",
    "pointing": "share of the images whose hottest pixel lies on the object",
    "part": "share of the heat that lies on the part which decides the class",
}


def meaning(name: str) -> str:
    """A sentence about the measure; nothing where it is unknown."""
    share = re.fullmatch(r"(A[DI])(\d+(?:\.\d+)?)", name)
    if share is None:
        return _MEANING.get(name, "")
    return f"as {share[1]}, keeping the hottest {share[2]} % of the pixels and hiding the others"
