"""What the network learned: every class with the training images that became its prototypes.

One row a class, its strongest prototype first. The sheet shows the pictures it is given, source images or
places of them, and where a spotlight is given it fades what lies outside; deciding which image a prototype
came from, and where, is left to projection and interpretation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from dprotonet.figures.canvas import Canvas
from dprotonet.figures.style import BODY, GAP, INK, MARGIN, MUTED, SMALL, TITLE, fitted, font, number, wrapped

TILE = 128  # edge of a prototype's picture
LINE = 22  # height of a line beneath it
NAME = 210  # width of the column of class names
HEADER, FOOTER = 74, 46
SPACE = 26  # between two classes, with a hairline in the middle
COLUMNS = 12  # prototypes side by side before a class continues on a second line
SHADE, PALE = 0.4, 235  # how much of the picture remains outside its spotlight, and the grey it fades to


@dataclass(frozen=True)
class Tile:
    """One prototype as the sheet shows it."""

    image: Tensor  # (3, H, W) uint8
    label: str
    value: str
    caption: str


def prototype_sheet(
    sources: Tensor,
    *,
    prototype_class: Sequence[int],
    classes: Sequence[str],
    weights: Sequence[float] | None = None,
    captions: Sequence[str] | None = None,
    spotlights: Tensor | None = None,
    note: str = "",
    max_classes: int = 40,
) -> Image.Image:
    """A sheet of all prototypes; `sources` (P, 3, H, W) uint8, `spotlights` (P, H, W) in [0, 1].

    `weights` are those of the prototypes in the head for their own class: they sort each row, greatest first.
    A `note` says what the pictures are. Only the first `max_classes` classes are drawn; the footer says so.
    """
    if max_classes < 1:
        raise ValueError(f"max_classes must be at least 1, not {max_classes}")
    _check(
        len(sources),
        prototype_class=prototype_class,
        weights=weights,
        captions=captions,
        spotlights=spotlights,
    )
    members = _members(prototype_class, weights, class_count=len(classes))
    rows = []
    for name, indices in list(zip(classes, members, strict=True))[:max_classes]:
        lit = [sources[at] if spotlights is None else spotlit(sources[at], spotlights[at]) for at in indices]
        numbers = ["" if weights is None else number(float(weights[at])) for at in indices]
        notes = ["" if captions is None else captions[at] for at in indices]
        labels = [f"#{at}" for at in indices]
        rows.append((name, [Tile(*parts) for parts in zip(lit, labels, numbers, notes, strict=True)]))
    return _drawn(rows, footer=_footer(rows, len(classes)), weighted=weights is not None, note=note)


def spotlit(image: Tensor, spotlight: Tensor) -> Tensor:
    """An image (3, H, W) uint8 that fades to a pale grey outside its spotlight (H, W) in [0, 1]."""
    if spotlight.shape != image.shape[1:]:
        raise ValueError(
            f"a spotlight {tuple(spotlight.shape)} cannot lie over a source {tuple(image.shape)}"
        )
    light = spotlight.to(image.device, torch.float32).clamp(0, 1)
    colour = image.float()
    outside = SHADE * colour.mean(dim=0) + (1 - SHADE) * PALE
    return (light * colour + (1 - light) * outside).round().to(torch.uint8)


def _check(count: int, **given: Sequence[object] | Tensor | None) -> None:
    for name, values in given.items():
        if values is not None and len(values) != count:
            raise ValueError(
                f"{name} has {len(values)} entries for {count} sources; each prototype needs one"
            )


def _members(
    prototype_class: Sequence[int], weights: Sequence[float] | None, *, class_count: int
) -> list[list[int]]:
    """The prototypes of each class, the weightiest first."""
    members: list[list[int]] = [[] for _ in range(class_count)]
    for index, label in enumerate(map(int, prototype_class)):
        if not 0 <= label < class_count:
            raise ValueError(f"prototype {index} is of class {label}, but there are {class_count} classes")
        members[label].append(index)
    if weights is not None:
        for row in members:
            row.sort(key=lambda index: -float(weights[index]))
    return members


def _footer(rows: Sequence[tuple[str, list[Tile]]], total: int) -> str:
    shown, prototypes = len(rows), sum(len(tiles) for _, tiles in rows)
    noun = "class" if total == 1 else "classes"
    extent = f"{shown} of {total} {noun}" if shown < total else f"{total} {noun}"
    return f"{extent} · {prototypes} {'prototype' if prototypes == 1 else 'prototypes'}"


def _drawn(rows: Sequence[tuple[str, list[Tile]]], *, footer: str, weighted: bool, note: str) -> Image.Image:
    columns = min(COLUMNS, max((len(tiles) for _, tiles in rows), default=1))
    columns = max(columns, 4)  # room for the header
    height = HEADER + sum(_height(tiles) + SPACE for _, tiles in rows) + FOOTER
    width = NAME + columns * (TILE + GAP) - GAP
    canvas = Canvas(2 * MARGIN + width, MARGIN + height)
    canvas.text((MARGIN, MARGIN + 24), "Prototypes", size=TITLE, bold=True)
    if weighted:
        order = "at the right beneath each: its weight for its own class, greatest first"
        canvas.text((MARGIN + NAME, MARGIN + 24), order, size=SMALL, colour=MUTED, width=width - NAME)
    if note:
        canvas.text((MARGIN + NAME, MARGIN + 24 - LINE), note, size=SMALL, colour=MUTED, width=width - NAME)
    top = MARGIN + HEADER
    for name, tiles in rows:
        canvas.rule((MARGIN, top - SPACE // 2), (MARGIN + width, top - SPACE // 2))
        _draw_class(canvas, top, name=name, tiles=tiles)
        top += _height(tiles) + SPACE
    canvas.rule((MARGIN, top - SPACE // 2), (MARGIN + width, top - SPACE // 2))
    canvas.text((MARGIN, top + 18), footer, size=SMALL, colour=MUTED)
    return canvas.image


def _tile_height(tiles: Sequence[Tile]) -> int:
    return TILE + LINE * (2 if any(tile.caption for tile in tiles) else 1)


def _height(tiles: Sequence[Tile]) -> int:
    lines = -(-len(tiles) // COLUMNS)
    return lines * _tile_height(tiles) + max(lines - 1, 0) * GAP if tiles else LINE


def _draw_class(canvas: Canvas, top: int, *, name: str, tiles: Sequence[Tile]) -> None:
    baseline = top + (16 if not tiles else 20)
    names = wrapped(name, NAME - 2 * GAP, font(BODY, bold=True), lines=3 if tiles else 1)
    for part in names:
        canvas.text((MARGIN, baseline), part, bold=True)
        baseline += 24
    if not tiles:
        canvas.text((MARGIN + NAME, baseline - 24), "no prototypes", size=SMALL, colour=MUTED)
        return
    count = "1 prototype" if len(tiles) == 1 else f"{len(tiles)} prototypes"
    canvas.text((MARGIN, baseline), count, size=SMALL, colour=MUTED)
    for place, tile in enumerate(tiles):
        line, column = divmod(place, COLUMNS)
        left = MARGIN + NAME + column * (TILE + GAP)
        _draw_tile(canvas, (left, top + line * (_tile_height(tiles) + GAP)), tile)


def _draw_tile(canvas: Canvas, at: tuple[int, int], tile: Tile) -> None:
    left, top = at
    canvas.picture(at, tile.image, TILE)
    baseline = top + TILE + 17
    canvas.text((left, baseline), tile.label, size=SMALL, colour=MUTED)
    canvas.text((left + TILE, baseline), tile.value, size=SMALL, colour=INK, anchor="rs")
    if tile.caption:
        caption = fitted(tile.caption, TILE, font(SMALL - 2), tail=8)
        canvas.text((left, baseline + LINE - 3), caption, size=SMALL - 2, colour=MUTED)
