"""The last line of `dprotonet demo` can be typed as it is printed, in an activated environment or not."""

import shlex
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from dprotonet.cli import demo, serve


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command in an environment that has not been activated, as after `make demo`."""
    path = tmp_path / ".venv" / "bin" / "dprotonet"
    path.parent.mkdir(parents=True)
    path.touch(mode=0o755)
    monkeypatch.setattr(demo.sysconfig, "get_path", lambda kind: str(path.parent))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return path


@pytest.mark.usefixtures("script")
def test_the_path_where_nothing_is_activated() -> None:
    assert demo.next_command(Path("runs/demo")) == "next: .venv/bin/dprotonet serve runs/demo"


def test_the_bare_name_where_the_path_leads_to_it(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    assert demo.next_command(Path("my runs")) == "next: dprotonet serve 'my runs'"


def test_another_installation_on_the_path_is_not_meant(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dprotonet").touch(mode=0o755)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert demo.next_command(Path("run")) == f"next: {script} serve run"


def test_without_a_script_the_module_is_called(script: Path) -> None:
    script.unlink()
    assert demo.next_command(Path("run")) == f"next: {shlex.quote(sys.executable)} -m dprotonet serve run"


@pytest.mark.usefixtures("script")
def test_no_page_where_the_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "find_spec", lambda name: None if name == "uvicorn" else name)
    assert demo.next_command(Path("run")) == "next: .venv/bin/dprotonet explain run IMAGE --out explained"


def test_the_line_works_as_printed(run_folder: Path) -> None:
    command = shlex.split(demo.next_command(run_folder).removeprefix("next: "))
    with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            words = server.stdout.readline().split()
            assert words[0] == "open"
            with urlopen(f"{words[-1]}healthz", timeout=60) as answer:  # from now on it hears signals
                assert answer.status == 200
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=60) == 0
        finally:
            server.kill()  # else a failure would wait for the server for ever
