"""The stylesheet: enough contrast in light, dark and print, and nothing fetched."""

import re
from importlib.resources import files

import pytest

STYLE = (files("dprotonet.report") / "templates" / "style.css").read_text(encoding="utf-8")
READ = 4.5  # WCAG 2, AA, text
SEEN = 3.0  # lines of a chart

TEXT = [
    ("ink", "paper"),
    ("ink", "sheet"),
    ("muted", "paper"),
    ("muted", "sheet"),
    ("link", "paper"),
    ("link", "sheet"),
    ("for", "sheet"),
    ("against", "sheet"),
    ("warn-ink", "warn-paper"),
    ("ink", "s1"),
    ("ink", "s2"),
    ("ink", "s3"),
    ("deep", "s4"),
    ("deep", "s5"),
]
LINES = [("for", "paper"), ("against", "paper"), ("ink", "paper"), ("fill-for", "rail")]


def palettes() -> dict[str, dict[str, str]]:
    """Colours by name in light, dark and print."""
    found = [
        dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{3,6})", block))
        for block in re.findall(r":root\s*{([^}]*)}", STYLE)
    ]
    return dict(zip(("light", "dark", "print"), found, strict=True))


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_itself() -> None:
    assert contrast("#000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_text_can_be_read_and_lines_be_seen(theme: str) -> None:
    colours = palettes()[theme]
    pale = {
        f"{one} on {other}": round(contrast(colours[one], colours[other]), 2)
        for one, other in TEXT
        if contrast(colours[one], colours[other]) < READ
    }
    assert pale == {}
    for one, other in LINES:
        assert contrast(colours[one.removeprefix("fill-")], colours[other]) >= SEEN


def test_both_schemes_and_paper_are_provided() -> None:
    assert "prefers-color-scheme: dark" in STYLE
    assert "@media print" in STYLE
    assert "prefers-reduced-motion" in STYLE
    assert not re.search(r"url\(|@import|https?:", STYLE)
