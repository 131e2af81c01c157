"""How many decimals a sum is printed with, by its magnitude, so that what is printed can be checked.

Large points have two decimals, small ones more, or else products and sums of hundredths would read as none.
The factors have as many as it takes for their printed product to be the points.
"""

import math
from collections.abc import Sequence

FEWEST, MOST = 2, 4
DIGITS = 3  # that the largest points have, as far as `MOST` allows


def point_decimals(points: Sequence[float]) -> int:
    """For points that are printed beneath each other."""
    largest = max((abs(value) for value in points), default=0.0)
    if largest == 0:
        return FEWEST
    return min(max(DIGITS - 1 - math.floor(math.log10(largest)), FEWEST), MOST)


def factor_decimals(factors: Sequence[tuple[float, float]], *, points: int) -> int:
    """For factors whose products have so many decimals: rounded, they still give the product's last digit."""
    for decimals in range(FEWEST, MOST):
        errors = (abs(round(a, decimals) * round(b, decimals) - a * b) for a, b in factors)
        if all(error <= 0.5 * 10.0**-points for error in errors):
            return decimals
    return MOST


def shares(values: Sequence[float], *, decimals: int = FEWEST) -> list[float]:
    """The values rounded so that they add up to their rounded sum; each moves by less than one last digit.

    Rounded one by one, ten numbers and their sum easily disagree in the last digit, and the reader who adds
    them up would find the sheet wrong. So all are rounded down, and those that lost most get one digit back.
    """
    unit = 10.0**-decimals
    floors = [math.floor(value / unit) for value in values]
    missing = round(sum(values) / unit) - sum(floors)
    by_loss = sorted(range(len(values)), key=lambda index: floors[index] - values[index] / unit)
    for index in by_loss[:missing]:
        floors[index] += 1
    return [floor * unit for floor in floors]
