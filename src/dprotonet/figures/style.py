"""The palette and the typography that every figure shares.

Colours come from the Okabe-Ito family, which people with any colour blindness can tell apart. The font is the
DejaVu Sans that matplotlib ships, so that a sheet looks the same on a bare server; it covers Latin, Greek,
Cyrillic, Hebrew and Arabic letters. What it lacks, such as Chinese, Japanese and Korean letters and most
emoji, is drawn as one plain mark.
"""

from functools import lru_cache
from pathlib import Path

from PIL import ImageFont

PAPER = "#fbfbf9"  # background
INK = "#22272e"  # text that is to be read
MUTED = "#69717c"  # text that explains
HAIRLINE = "#dfe2e5"  # rules, grids
QUIET = "#c3cad2"  # bars that are not the point
FOR = "#0072b2"  # speaks for a class, also the training curve
AGAINST = "#d55e00"  # speaks against it
TRUE_BOX, FOUND_BOX = "#ff1a1a", "#ffe600"  # as the paper has them: the true one red, the found one yellow
CAUTION, CAUTION_INK = "#e69f00", "#7a4f00"  # a mark and the words of a notice

# Blue to red, as the paper draws heatmaps; lightness rises once and falls once: no band looks like an edge.
HEAT = (
    "#2c2f83",
    "#3060c4",
    "#2e97d1",
    "#3fc4b4",
    "#90dd74",
    "#dcdc4c",
    "#f7b23b",
    "#ef722c",
    "#d9331f",
    "#bf1416",
)

TITLE, BODY, SMALL = 28, 18, 15  # font sizes in pixels
MARGIN, GAP = 44, 14
LACKING = "□"  # stands for a character that the font does not have


@lru_cache(maxsize=16)
def font(size: int = BODY, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu Sans in a size in pixels."""
    return ImageFont.truetype(_font_file(bold), size)


def drawable(text: str) -> str:
    """The text with a mark for every character that the font lacks; every figure's text comes through here.

    Left alone, such a character would be a box at best, and matplotlib would warn of it on stderr.
    """
    if text.isascii():
        return text
    known = _characters()
    return "".join(one if one.isspace() or ord(one) in known else LACKING for one in text)


def _font_file(bold: bool) -> str:
    import matplotlib

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return str(Path(matplotlib.get_data_path(), "fonts", "ttf", name))


@lru_cache(maxsize=1)
def _characters() -> frozenset[int]:
    """What both weights have, so that a name reads the same in bold."""
    from matplotlib.ft2font import FT2Font

    plain, bold = (FT2Font(_font_file(weight)).get_charmap().keys() for weight in (False, True))
    return frozenset(plain & bold)


def fitted(text: str, width: float, typeface: ImageFont.FreeTypeFont, *, tail: int = 0) -> str:
    """The text on one line, cut with an ellipsis where it would be wider than `width` pixels.

    The last `tail` characters are kept: the names of files differ at their ends.
    """
    text = drawable(" ".join(text.split()))
    if typeface.getlength(text) <= width:
        return text
    end = "…" + text[len(text) - tail :]
    low, high = 0, len(text) - tail
    while low < high:  # bisection: the longest beginning that leaves room for the ellipsis
        middle = (low + high + 1) // 2
        fits = typeface.getlength(text[:middle].rstrip() + end) <= width
        low, high = (middle, high) if fits else (low, middle - 1)
    return text[:low].rstrip() + end


def wrapped(text: str, width: float, typeface: ImageFont.FreeTypeFont, *, lines: int) -> list[str]:
    """The text broken at spaces into at most `lines` lines; the last one is cut if need be."""
    words, broken = drawable(text).split(), [""]
    while words and len(broken) < lines:
        longer = f"{broken[-1]} {words[0]}".strip()
        if broken[-1] and typeface.getlength(longer) > width:
            broken.append("")
        else:
            broken[-1] = longer
            words.pop(0)
    broken[-1] = " ".join([broken[-1], *words])
    return [fitted(line, width, typeface) for line in broken]


def shortened(text: str, length: int) -> str:
    """The text on one line with at most `length` characters, for charts whose labels have no fixed width."""
    text = drawable(" ".join(text.split()))
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def sentence(words: str) -> str:
    """Words that stand for themselves: a capital before, a full stop behind."""
    return f"{words[:1].upper()}{words[1:]}." if words else ""


def number(value: float, *, decimals: int = 2, signed: bool = False) -> str:
    """A number with a true minus sign, and never "-0.00"."""
    shown = round(value, decimals) + 0.0  # adding zero turns -0.0 into 0.0
    return f"{shown:{'+' if signed and shown else ''}.{decimals}f}".replace("-", "−")
