"""Which of several processes this is, by what torchrun or accelerate launch put into the environment."""

import os


def processes() -> int:
    """How many processes work together, on all machines."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def process() -> int:
    """The number of this one, from 0."""
    return int(os.environ.get("RANK", "0"))


def is_main() -> bool:
    """Whether this is the process that writes and prints."""
    return process() == 0
