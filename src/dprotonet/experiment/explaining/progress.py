"""How far the maps of several calls of a decoder are, counted in steps over all of them."""

from collections.abc import Callable

from dprotonet.interpretation.masking_task import Step

Tell = Callable[[int, int, Step], None]  # steps done, steps in all, and the one that was just taken


class StepCounter:
    """Of so many maps, made some at a time."""

    def __init__(self, maps: int) -> None:
        self.maps, self.begun, self.steps = maps, 0, 1  # steps of one map, as far as is known

    def next(self, count: int, tell: Tell) -> Callable[[Step], None]:
        """Who watches the steps of the next `count` maps, which are taken together."""
        before = self.begun
        self.begun += count

        def watch(step: Step) -> None:
            self.steps = step.total
            tell(before * step.total + count * step.number, self.maps * step.total, step)

        return watch

    @property
    def finished(self) -> tuple[int, int]:
        """Steps done and in all once the maps that were begun are made, also by who takes no steps."""
        return self.begun * self.steps, self.maps * self.steps
