"""Changes of valid files: bytes, trees of JSON and TOML, and lists of pieces that know their own lengths.

Everything is drawn from the generator that is handed over, so that the number of an input says what it was.
"""

import json
import random
import re
from collections.abc import Sequence
from typing import Any

_BYTES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF, 0x0A, 0x20, 0x22, 0x2C, 0x7B, 0x5B)
_NUMBERS = (0, 1, 2, 3, 7, 8, 16, 255, 256, 4096, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 2**24, 2**31 - 1, 2**31)
_LARGE = (2**32 - 1, 2**48, 2**63 - 1, 2**64 - 1)
_DIGITS = re.compile(rb"\d+")
_WORDS = (b"-1", b"0", b"1e400", b"-1e400", b"nan", b"inf", b"NaN", b"Infinity", b"1_0", b"9" * 400)
_OTHER_SCRIPTS = ("٣", "३", "３", "²", "½", "一", "௩")
"""Digits that `int` or `str.isdigit` take for numbers, and nobody else does."""

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 3, 255, 2**31, 2**63, 10**400, 0.5, -0.0, 1e-320, 1e308),
    *(
        float("nan"),
        float("inf"),
        float("-inf"),
        "",
        " ",
        "\0",
        "\ud800",
        "../../etc/passwd",
        "/",
        "a" * 3000,
    ),
    *("a" * 3000, "-1", "1e400", "nan", *_OTHER_SCRIPTS, [], {}, [[]], [None], [0], {"a": {}}, ["a", "a"]),
)


def mutated(generator: random.Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """A few changes of bytes; sometimes another valid file takes over in the middle."""
    changed = bytearray(data)
    for _ in range(generator.choice((1, 1, 1, 2, 3, 5))):
        changed = generator.choice(_CHANGES)(generator, changed)
    if others and generator.random() < 0.05:
        other = generator.choice(others)
        changed = changed[: generator.randrange(len(changed) + 1)]
        changed += other[generator.randrange(len(other) + 1) :]
    return bytes(changed)


def _place(generator: random.Random, data: bytearray) -> int:
    """Headers are hit more often than what follows them."""
    most = min(len(data), 64) if generator.random() < 0.4 else len(data)
    return generator.randrange(most + 1)


def _flipped(generator: random.Random, data: bytearray) -> bytearray:
    if data:
        data[min(_place(generator, data), len(data) - 1)] ^= 1 << generator.randrange(8)
    return data


def _set(generator: random.Random, data: bytearray) -> bytearray:
    if data:
        data[min(_place(generator, data), len(data) - 1)] = generator.choice(_BYTES)
    return data


def _removed(generator: random.Random, data: bytearray) -> bytearray:
    at = _place(generator, data)
    del data[at : at + generator.choice((1, 2, 4, 16, 100))]
    return data


def _cut(generator: random.Random, data: bytearray) -> bytearray:
    return data[: _place(generator, data)]


def _inserted(generator: random.Random, data: bytearray) -> bytearray:
    at = _place(generator, data)
    data[at:at] = generator.choice(
        (generator.randbytes(generator.choice((1, 4, 30))), bytes(200), b"\xff" * 16)
    )
    return data


def _doubled(generator: random.Random, data: bytearray) -> bytearray:
    at = _place(generator, data)
    piece = data[at : at + generator.choice((1, 4, 12, 100))]
    data[at:at] = piece * generator.choice((1, 2, 20))
    return data


def _number(generator: random.Random, data: bytearray) -> bytearray:
    size, order = generator.choice((1, 2, 2, 4, 4, 8)), generator.choice(("little", "big"))
    at = _place(generator, data)
    value = generator.choice((*_NUMBERS, *_LARGE)) % 256**size
    data[at : at + size] = value.to_bytes(size, order)  # type: ignore[arg-type]
    return data


def _digits(generator: random.Random, data: bytearray) -> bytearray:
    """A number in words is another one, of another script, or no number."""
    found = list(_DIGITS.finditer(data))
    if not found:
        return _number(generator, data)
    place = generator.choice(found)
    words = (*_WORDS, *(word.encode() for word in _OTHER_SCRIPTS), *(str(one).encode() for one in _NUMBERS))
    data[place.start() : place.end()] = generator.choice(words)
    return data


_CHANGES = (_flipped, _flipped, _set, _removed, _cut, _inserted, _doubled, _number, _number, _digits)


def odd_tree(generator: random.Random, tree: Any) -> Any:
    """A tree of tables, lists and values with one to three places changed; the tree itself stays."""
    changed = json.loads(json.dumps(tree))
    for _ in range(generator.choice((1, 1, 2, 3))):
        changed = _odd_place(generator, changed)
    return changed


def _odd_place(generator: random.Random, tree: Any) -> Any:
    places = list(_places(tree))
    if not places or generator.random() < 0.02:
        return _odd(generator, tree)
    inside, key = generator.choice(places)
    draw = generator.random()
    if draw < 0.15:
        del inside[key]
    elif draw < 0.25 and isinstance(inside, dict):
        inside[generator.choice(("", "x", "__class__", f"{key} ", "format"))] = inside.pop(key)
    elif draw < 0.35:
        _again(generator, inside, key)
    else:
        inside[key] = _odd(generator, inside[key])
    return tree


def _again(generator: random.Random, inside: Any, key: Any) -> None:
    """An entry twice, or another entry's value."""
    if isinstance(inside, list):
        inside.insert(generator.randrange(len(inside) + 1), inside[key])
    else:
        inside[key] = inside[generator.choice(list(inside))]


def _places(tree: Any) -> Any:
    """Every entry below a tree, as the thing it is in and its key."""
    if isinstance(tree, dict | list):
        for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
            yield tree, key
            yield from _places(tree[key])


def _odd(generator: random.Random, value: Any) -> Any:
    """Another value, often near the one that is there."""
    draw = generator.random()
    if isinstance(value, bool) or value is None or draw < 0.5:
        return generator.choice(ODD)
    if isinstance(value, int):
        return generator.choice((value + 1, value - 1, -value, f"{value}", value * 1000, 0.5))
    if isinstance(value, float):
        return generator.choice((-value, value + 1, 0.0, value * 1e300, str(value)))
    if isinstance(value, str):
        return generator.choice((value + "x", value[:1], value * 50, f"../{value}", value.swapcase()))
    return generator.choice(([value], {"x": value}, list(value), str(value)[:100]))


def odd_json(generator: random.Random, text: str) -> bytes:
    """The text of a JSON file, changed as a tree or as bytes, or nested deeper than any reader goes."""
    draw = generator.random()
    if draw < 0.02:
        opening, closing = generator.choice((("[", "]"), ('{"a":', "}")))
        depth = generator.choice((50, 900, 100_000))
        return (opening * depth + "1" + closing * depth).encode()
    if draw < 0.3:
        return mutated(generator, text.encode())
    changed = json.dumps(odd_tree(generator, json.loads(text)))
    return mutated(generator, changed.encode()) if draw < 0.4 else changed.encode()
