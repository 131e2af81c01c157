"""A served run under load: eight clients for a minute, each sending images and asking why.

The server is the command `dprotonet serve` in a process of its own, on this machine only. Told are answers
and errors (a "busy" is an answer), the time until an answer, and the server's memory after a quarter of the
time and at the end: it must not grow. Without --run a tiny one is trained first.
"""

import argparse
import http.client
import io
import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

from PIL import Image
from timing import tell

from dprotonet.config import Config, DataConfig, NetworkConfig, TrainingConfig
from dprotonet.data.birds import Birds
from dprotonet.experiment.runs.trainer import Trainer

TARGETS = {"errors": 0, "memory_growth_mb": 64}
BOUNDARY = "benchmark"


class Client:
    """One visitor: sends an image, asks about another class, looks at places, changes its mind."""

    def __init__(self, address: str, images: list[bytes]) -> None:
        self.place, self.images = urlsplit(address), images
        self.line = self._line()
        self.seconds: dict[str, list[float]] = {}
        self.answers: Counter[str] = Counter()
        self.errors: list[str] = []

    def visit(self, number: int) -> None:
        """Once through the page."""
        found = self.upload(self.images[number % len(self.images)])
        if found is None:
            return
        base = f"/api/images/{found['image']}"
        self.ask("evidence", "POST", f"{base}/evidence", {"label": number % 4, "off": [number % 8]})
        self.ask("picture", "GET", f"{base}/picture")
        self.ask("what if", "POST", "/api/what-if", {"off": [number % 8]})
        if number % 4 == 0:
            wanted = [row["prototype"] for row in found["rows"]]
            job = self.ask("places", "POST", f"{base}/places", {"prototypes": wanted})
            if job is not None and number % 8 == 0:
                time.sleep(0.5)
                self.ask("cancel", "DELETE", f"/api/jobs/{job['job']}")

    def upload(self, data: bytes) -> dict | None:
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
        body = head.encode() + data + f"\r\n--{BOUNDARY}--\r\n".encode()
        kind = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
        return self._asked("prediction", "POST", "/api/images", body, kind)

    def ask(self, what: str, method: str, path: str, content: dict | None = None) -> dict | None:
        body = None if content is None else json.dumps(content).encode()
        return self._asked(what, method, path, body, {"Content-Type": "application/json"})

    def _asked(self, what: str, method: str, path: str, body: bytes | None, headers: dict) -> dict | None:
        begun = time.perf_counter()
        try:
            self.line.request(method, path, body, headers)
            answer = self.line.getresponse()
            content = answer.read()
        except OSError as error:
            self.errors.append(f"{what}: {error!r}")
            self.line = self._line()
            return None
        self.seconds.setdefault(what, []).append(time.perf_counter() - begun)
        self.answers[f"{what} {answer.status}"] += 1
        if answer.status == 503:
            time.sleep(0.2)
        elif answer.status >= 400:
            self.errors.append(f"{what}: {answer.status} {content[:200]!r}")
        fine = answer.status < 400 and answer.getheader("content-type") == "application/json"
        return json.loads(content) if fine else None

    def _line(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.place.hostname or "", self.place.port, timeout=60)


def trained(folder: Path) -> Path:
    """A run of a few seconds."""
    data = DataConfig(species=4, train_per_species=6, val_per_species=3, test_per_species=3, image_size=64)
    network = NetworkConfig(backbone="timm:test_resnet:none", dimension=16, masks=12, prototypes_per_class=2)
    training = TrainingConfig(
        mode="frozen", epochs=2, warm_epochs=1, push_every=2, last_layer_epochs=1, push_images=2, batch_size=8
    )
    for _ in Trainer(Config(data, network, training), folder / "run", cache=folder / "cache").run():
        pass
    return folder / "run"


def birds(count: int) -> list[bytes]:
    """Pictures as a camera gives them: larger than the network wants."""
    data, found = Birds(species=4, per_species=count, split="test", size=512), []
    for index in range(count):
        stream = io.BytesIO()
        Image.fromarray(data[index].image.permute(1, 2, 0).numpy()).save(stream, format="JPEG")
        found.append(stream.getvalue())
    return found


def megabytes(process: int) -> float:
    """Memory of a process that is in use now."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no such process")


def measured(address: str, process: int, options: argparse.Namespace) -> dict:
    images, end = birds(8), threading.Event()
    clients = [Client(address, images) for _ in range(options.clients)]

    def work(client: Client, first: int) -> None:
        number = first
        while not end.is_set():
            client.visit(number)
            number += 1

    threads = [threading.Thread(target=work, args=pair) for pair in zip(clients, range(99), strict=False)]
    for thread in threads:
        thread.start()
    memory = [megabytes(process)]
    for _ in range(4):
        time.sleep(options.seconds / 4)
        memory.append(megabytes(process))
    end.set()
    for thread in threads:
        thread.join()
    return summary(clients, memory, options)


def summary(clients: list[Client], memory: list[float], options: argparse.Namespace) -> dict:
    kinds = sorted({kind for client in clients for kind in client.seconds})
    errors = [error for client in clients for error in client.errors]
    answers = sum((client.answers for client in clients), Counter())
    times = {kind: sorted(one for c in clients for one in c.seconds.get(kind, [])) for kind in kinds}
    return {
        "clients": len(clients),
        "seconds": options.seconds,
        "answers": dict(sorted(answers.items())),
        "answers_per_second": round(sum(answers.values()) / options.seconds, 1),
        "milliseconds": {
            kind: {"half": spread(values, 0.5), "95 %": spread(values, 0.95), "all": spread(values, 1.0)}
            for kind, values in times.items()
        },
        "errors": len(errors),
        "first_errors": errors[:3],
        "memory_mb": [round(value, 1) for value in memory],
        "memory_growth_mb": round(memory[-1] - memory[1], 1),
        "targets": TARGETS,
    }


def spread(values: list[float], share: float) -> float:
    """The time within which that share was answered, in milliseconds."""
    return round(1000 * values[max(0, math.ceil(share * len(values)) - 1)], 1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, help="a run folder (default: a tiny one is trained)")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        run = options.run or trained(Path(folder))
        command = [sys.executable, "-m", "dprotonet", "serve", str(run), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            address = server.stdout.readline().split()[-1]
            try:
                tell(measured(address, server.pid, options))
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
