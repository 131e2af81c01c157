"""Run by test_together.py as one of several processes: commands one after the other, in one group."""

import json
import os
import sys
from importlib import import_module

from dprotonet.cli.launched import others_silent
from dprotonet.training.processes import leave_group


def main(commands: str) -> None:
    for command, *words in json.loads(commands):
        with others_silent():
            import_module(f"dprotonet.cli.{command}").main(words)
    leave_group()
    sys.stdout.flush()
    os._exit(0)  # a thread of gloo may outlive its group and abort the interpreter on its way out


if __name__ == "__main__":
    main(sys.argv[1])
