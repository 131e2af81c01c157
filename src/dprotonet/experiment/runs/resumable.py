"""What may change when a run is resumed, and what makes it another run."""

from dataclasses import fields

from dprotonet.config import Config, ExplainingConfig, by_name

# These may differ when a run is resumed: they change how long or how fast, not what is learned.
# Pieces of a step differ by rounding, and where BatchNorm learns by whose statistics it takes.
RESUMABLE = {
    *("epochs", "patience", "workers", "image_cache", "log", "tensorboard"),
    *("accumulate", "checkpoint_activations", "memory_format"),
    *(item.name for item in fields(ExplainingConfig)),
}


def changed_keys(stored: Config, given: Config) -> list[str]:
    """Settings in which a resumed run would differ from what was started, beyond the harmless ones."""
    before, after = by_name(stored), by_name(given)
    changed = [name.rpartition(".")[2] for name in before if before[name] != after[name]]
    return [key for key in changed if key not in RESUMABLE]
