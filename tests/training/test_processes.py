"""Sharing out and putting together again, with the other processes made up."""

import pytest
from accelerate import Accelerator

from dprotonet.errors import UserError
from dprotonet.training.processes import Group, local_share, of_local_main, told_to_all


class MadeUp(Group):
    """Process 0 of several, which knows what the others bring."""

    def gathered(self, mine: list[int]) -> list[list[int]]:
        return [list(Group(number, self.processes).of(ITEMS)) for number in range(self.processes)]


ITEMS = list(range(11))


@pytest.mark.parametrize("processes", [1, 2, 3, 10, 11, 12, 20])
def test_items_that_were_shared_out_come_back_in_order(processes: int) -> None:
    group = MadeUp(0, processes)
    assert group.together(group.of(ITEMS)) == ITEMS


def test_alone() -> None:
    group = Group.joined()
    assert (group.process, group.processes, group.is_main) == (0, 1, True)
    assert group.of_main(lambda: 3) == 3
    assert group.together([1, 2]) == [1, 2]
    assert local_share(Accelerator(cpu=True)).processes == 1
    assert of_local_main(None, lambda: "made") == "made"


def test_a_mistake_that_one_finds_is_told_in_all() -> None:
    with pytest.raises(UserError, match="no room"):
        told_to_all([(None, None), (None, UserError("no room"))], 0)
    with pytest.raises(UserError, match="no room"):
        of_local_main(None, _no_room)


def _no_room() -> str:
    raise UserError("no room")
