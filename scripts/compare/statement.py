"""The table that statements enter themselves into."""

from collections.abc import Callable

from compare.pair import Pair

STATEMENTS: dict[str, Callable[[Pair], None]] = {}


def statement(run: Callable[[Pair], None]) -> Callable[[Pair], None]:
    """Enters a function by its name in capitals."""
    STATEMENTS[run.__name__.upper()] = run
    return run
