"""The one way a share is written in per cent: terminal, pictures, report and web page (dom.js) alike."""


def percent(share: float | None, digits: int = 1, *, space: str = " ") -> str:
    """A share as per cent; one that only rounding makes whole or nothing is not called so."""
    if share is None:
        return "–"
    least = 10.0**-digits
    if 0 < 100 * share < least / 2:
        return f"<{space}{least:.{digits}f}{space}%"
    if 100 - least / 2 <= 100 * share < 100:
        return f">{space}{100 - least:.{digits}f}{space}%"
    return f"{100 * share:.{digits}f}{space}%"
