"""The ways a command can end badly; each message says what, where and what to do."""


class UserError(ValueError):
    """A mistake the user can mend (exit code 2): the message names the thing, the place and the remedy."""


class ComputationError(RuntimeError):
    """A computation that failed although the input was well formed (exit code 1), such as a NaN loss."""


class Ended(KeyboardInterrupt):
    """SIGTERM, as `kill`, Slurm, systemd and Docker send it (exit code 143); else treated like Ctrl-C."""
