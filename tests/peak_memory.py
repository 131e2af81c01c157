"""How much memory one image takes: each is read in a process of its own, a copy of one that is idle.

Run as a script, with names of ways (file, scan, upload) and of images of `heavy_images`, or all of them. It
says of each as a line of JSON how far the peak was above the idle process, how long it took, and what came of
it. Address space and time are bounded: an image which takes too much ends its own process and nothing else.
"""

import ctypes
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

MOST = 6 * 2**30  # bytes of address space beyond the idle process
SECONDS = 60  # of computing, for one image


def resident(what: str) -> int:
    """VmRSS (now) or VmHWM (peak) in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(what))


def measured(action: Callable[[], object]) -> dict[str, object]:
    """Peak above idle, seconds and outcome of an action, in a copy of this process."""
    ctypes.CDLL(None).malloc_trim(0)  # what was freed is not idle memory
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _bound()
        os.write(writer, json.dumps(_watched(action)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        said = stream.read()
    os.waitpid(child, 0)
    return json.loads(said) if said else {"peak": None, "outcome": "the process died"}


def _bound() -> None:
    now = 1024 * next(
        int(line.split()[1])
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmSize")
    )
    resource.setrlimit(resource.RLIMIT_AS, (now + MOST, now + MOST))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


def _watched(action: Callable[[], object]) -> dict[str, object]:
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    idle, begun = resident("VmRSS"), time.monotonic()
    try:
        outcome = f"read {action()}"
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"
    return {
        "peak": resident("VmHWM") - idle,
        "seconds": round(time.monotonic() - begun, 2),
        "outcome": outcome[:300],
    }


def main(names: list[str]) -> None:
    from dprotonet.data.image import decode_image, probed_extent
    from dprotonet.data.upload import UploadLimits, read_upload
    from heavy_images import HEAVY

    ways: dict[str, Callable[[bytes, str], object]] = {
        "file": lambda data, name: tuple(decode_image(data, name=name, size=224).shape),
        "scan": lambda data, name: probed_extent(data, name=name),
        "upload": lambda data, _: tuple(
            read_upload(data, size=224, limits=UploadLimits(megabytes=1e6, megapixels=1e6)).picture.shape
        ),
    }
    asked = {name: ways[name] for name in names if name in ways} or ways
    for kind in [name for name in names if name not in ways] or HEAVY:
        data = HEAVY[kind]()
        ending = "a.dcm" if kind.startswith("dicom") else "a.image"
        for way, action in asked.items():
            found = measured(lambda action=action, data=data, ending=ending: action(data, ending))
            print(json.dumps({"kind": kind, "way": way, "bytes": len(data), **found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
