"""`make torture`: kill training, comparing and predicting again and again, and compare what is gone on with.

Prints its seed first, and one JSON at the end: of every subject how often it was killed before a change of a
file, at a random moment and twice in a row, and what was not as it would have been. With --every each change
of a file has its kill, one after the other, and --kills more come at random moments.
"""

import argparse
import json
import logging
import os
import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads do not survive a fork

from tests.torture.subjects import subjects  # noqa: E402
from tests.torture.torture import Attack, moment  # noqa: E402

_TWICE = 4  # every n-th attack kills the process that goes on as well
_MOMENT = 3  # every n-th attack comes at a random moment


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=120, help="at least so many processes are killed")
    parser.add_argument("--every", action="store_true", help="a kill before every change of a file")
    parser.add_argument("--minutes", type=float, default=20, help="no attack begins later")
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--out", type=Path, default=None, help="also write the JSON there")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(2**31)
    print(f"seed {seed}", file=sys.stderr, flush=True)
    logging.getLogger("dprotonet").setLevel(logging.ERROR)  # so few images are warned of each time
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        attacks = _prepared(Path(folder))
        attack = _at_every_change if arguments.every else _at_random
        attack(attacks, arguments.kills, start + 60 * arguments.minutes, random.Random(seed))
    content = _summary(attacks, seed, time.monotonic() - start)
    content["command"] += " (with --every)" if arguments.every else ""
    text = json.dumps(content, indent=1)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    return 1 if content["failures"] else 0


def _prepared(folder: Path) -> list[Attack]:
    """Every subject, done once undisturbed."""
    material = folder / "material"
    material.mkdir()
    attacks = [Attack(subject, folder / subject.name) for subject in subjects(material)]
    for attack in attacks:
        attack.prepare()
        told = f"{attack.outcome.changes} changes of files in {attack.seconds:.2f} s"
        print(f"{attack.subject.name}: {told}", file=sys.stderr, flush=True)
    return attacks


def _at_random(attacks: list[Attack], kills: int, deadline: float, generator: random.Random) -> None:
    """Subject after subject in turn, until there were enough kills or time is up."""
    turn = 0
    while sum(map(_kills, attacks)) < kills and time.monotonic() < deadline:
        for attack in attacks:
            _once(generator, attack, turn)
        turn += 1


def _at_every_change(attacks: list[Attack], kills: int, deadline: float, generator: random.Random) -> None:
    """Subjects in turn; where time is up first, the changes that were spared are spread evenly."""
    waiting = {attack.subject.name: _far_apart(attack.outcome.changes) for attack in attacks}
    moments = {attack.subject.name: kills // len(attacks) for attack in attacks}
    while any(waiting.values()) and time.monotonic() < deadline:
        for attack in attacks:
            name = attack.subject.name
            if waiting[name]:
                attack.at_changes(waiting[name].pop(0))
            if moments[name]:
                attack.at_moment(moment(generator, attack))
                moments[name] -= 1


def _far_apart(count: int) -> list[int]:
    """All numbers below `count`, each far from those before it."""
    return sorted(range(count), key=lambda number: number * 0.6180339887 % 1)


def _once(generator: random.Random, attack: Attack, turn: int) -> None:
    changes = attack.outcome.changes
    if turn % _MOMENT == _MOMENT - 1:
        attack.at_moment(moment(generator, attack))
    elif turn % _TWICE == _TWICE - 1:
        attack.at_changes(generator.randrange(changes), generator.randrange(changes))
    else:
        attack.at_changes(generator.randrange(changes))


def _kills(attack: Attack) -> int:
    return attack.outcome.at_a_change + attack.outcome.at_a_moment


def _summary(attacks: list[Attack], seed: int, seconds: float) -> dict:
    subjects = {
        attack.subject.name: {
            "changes of files": attack.outcome.changes,
            "killed before a change": attack.outcome.at_a_change,
            "killed at a moment": attack.outcome.at_a_moment,
            "came to its end first": attack.outcome.too_late,
            "failures": attack.outcome.failures,
        }
        for attack in attacks
    }
    return {
        "command": "make torture",
        "seed": seed,
        "seconds": round(seconds),
        "kills": sum(map(_kills, attacks)),
        "failures": sum(len(attack.outcome.failures) for attack in attacks),
        "subjects": subjects,
    }


if __name__ == "__main__":
    sys.exit(main())
