"""Near misses: what a mistyped name was probably meant to be."""

import difflib
from collections.abc import Iterable

MAX_LISTED = 12


def near_miss(name: object, known: Iterable[object]) -> str:
    """A hint for an unknown name: the one it resembles, else all known ones."""
    options = [str(option) for option in known]
    close = difflib.get_close_matches(str(name), options, n=1)
    close = close or [option for option in options if len(str(name)) > 2 and option.startswith(str(name))]
    if close:
        return f"did you mean {close[0]}?"
    if not options:
        return ""
    listed = ", ".join(options[:MAX_LISTED])
    more = f" and {len(options) - MAX_LISTED} more" if len(options) > MAX_LISTED else ""
    return f"there is: {listed}{more}"
