"""One way of writing a percentage: percent.py in Python, `percent` of dom.js on the page, and they agree."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import dprotonet
from dprotonet.percent import percent

SOURCE = Path(dprotonet.__file__).parent
SHARES = (0.0, 1e-12, 0.0004, 0.0005, 0.123456, 0.5, 0.9994, 0.9995, 0.9997, 0.99999999, 1.0)


def test_no_format_of_its_own() -> None:
    """`{share:.1%}` calls 0.9997 all of it; ticks of axes are round numbers and may."""
    own = re.compile(r":[<>^]?[0-9]*\.?[0-9]*%\}")
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if own.search(line)
    ]
    assert not found
    assert own.search("{x:.1%}")
    assert own.search("{x:6.1%}")


def test_no_share_is_rounded_to_all_or_nothing_on_the_page() -> None:
    other = re.compile(r"100 \* [^;]*toFixed\([0-9]\)} ?%")
    scripts = (SOURCE / "web/static").rglob("*.js")
    found = [path.name for path in scripts if other.search(path.read_text(encoding="utf-8"))]
    assert not found


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.parametrize("digits", [0, 1, 2])
def test_page_and_terminal_agree(digits: int) -> None:
    text = (SOURCE / "web/static/dom.js").read_text(encoding="utf-8")
    function = re.search(r"^export (function percent\(.*?^})", text, re.DOTALL | re.MULTILINE)
    assert function is not None
    script = f"{function[1]}\nconsole.log(JSON.stringify({list(SHARES)}.map((x) => percent(x, {digits}))))"
    said = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True).stdout
    assert json.loads(said) == [percent(share, digits) for share in SHARES]


def test_what_rounding_would_make_whole_or_nothing_is_not_called_so() -> None:
    for digits in (0, 1, 2, 3):
        for share in SHARES:
            written = percent(share, digits)
            if 0 < share < 1:
                assert float(written.strip("<> %")) not in (0.0, 100.0) or written[0] in "<>"
    assert percent(0.9997) == "> 99.9 %"
