"""`make fuzz`: feed damaged and hostile inputs to everything that reads, under limits of memory and time.

Prints one JSON: by target and kind how many inputs were accepted, refused with words, or showed a defect, and
each defect with the numbers of its first inputs. `--again TARGET NUMBER` feeds one of them and shows where it
fails. With `--state FILE` a campaign that was stopped goes on.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads do not survive a fork

from tests.fuzz.campaign import Campaign, Tally  # noqa: E402
from tests.fuzz.target import drawn  # noqa: E402
from tests.fuzz.targets import SHARES, opener  # noqa: E402
from tests.fuzz.worker import Limits, told  # noqa: E402


def main() -> int:
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.work or Path(temporary)
        if arguments.again:
            return _again(folder, *arguments.again, seed=arguments.seed)
        names = arguments.targets.split(",") if arguments.targets else list(SHARES)
        limits = Limits(arguments.cpu_seconds, arguments.megabytes)
        campaign = Campaign(
            {name: opener(name) for name in names},
            folder,
            seed=arguments.seed,
            limits=limits,
            state=arguments.state,
        )
        total = sum(SHARES[name] for name in names)
        wanted = {name: round(arguments.inputs * SHARES[name] / total) for name in names}
        start = time.monotonic()
        campaign.run(wanted, until=start + 60 * arguments.minutes, on_batch=_say)
    content = _summary(campaign, arguments)
    text = json.dumps(content, indent=1, ensure_ascii=False)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    return 1 if content["defects"] else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="of all targets together")
    parser.add_argument("--minutes", type=float, default=20, help="no batch begins later")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--targets", default="", help=f"of {','.join(SHARES)} (default: all)")
    parser.add_argument("--state", type=Path, default=None, help="where to keep how far it is")
    parser.add_argument("--work", type=Path, default=None, help="where to work (default: a temporary folder)")
    parser.add_argument("--out", type=Path, default=None, help="also write the JSON there")
    parser.add_argument("--cpu-seconds", type=float, default=Limits().seconds, help="of one input")
    parser.add_argument("--megabytes", type=int, default=Limits().megabytes, help="of one input")
    parser.add_argument("--again", nargs=2, metavar=("TARGET", "NUMBER"), help="feed one input again")
    return parser.parse_args()


def _say(name: str, tally: Tally) -> None:
    found = sum(one.count for one in tally.found.values())
    print(f"{name}: {tally.inputs} inputs, {found} defects of {len(tally.found)} kinds", file=sys.stderr)


def _again(folder: Path, name: str, number: str, *, seed: int) -> int:
    target = opener(name)(folder / name)
    case = drawn(target, name, seed, int(number))
    print(f"{case.kind}, {len(case.content)} bytes: {case.content[:2000]!r}")
    try:
        target.feed(case)
    except BaseException as error:
        print(told(error))
        return 1
    print("accepted")
    return 0


def _summary(campaign: Campaign, arguments: argparse.Namespace) -> dict:
    tallies = campaign.tallies
    return {
        "command": f"python scripts/fuzz.py --seed {arguments.seed}",
        "seed": arguments.seed,
        "limits of an input": {
            "CPU seconds": campaign.limits.seconds,
            "megabytes": campaign.limits.megabytes,
        },
        "inputs": sum(tally.inputs for tally in tallies.values()),
        "defects": sum(found.count for tally in tallies.values() for found in tally.found.values()),
        "targets": {
            name: {
                "inputs": tally.inputs,
                "most megabytes": round(tally.megabytes, 1),
                "most CPU seconds": round(tally.seconds, 2),
                "kinds": {kind: dict(sorted(told.items())) for kind, told in sorted(tally.counts.items())},
                "defects": [vars(found) for found in tally.found.values()],
            }
            for name, tally in tallies.items()
        },
    }


if __name__ == "__main__":
    sys.exit(main())
