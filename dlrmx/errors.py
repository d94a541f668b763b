"""The errors a user can meet, and the exit code that each one means.

DlrmxError            1   the run failed
  InputError          2   a recipe, data, checkpoint or setting is wrong; nothing was started
  ClusterError        3   the cluster cannot be reached or refuses
    Unanswered        3   it was asked, and did not answer
  UnknownRun          4   no such run

The command line prints `str(error)` and exits with `exit_code`; a traceback is always our bug.
"""

from dataclasses import dataclass

MOST_SHOWN = 10  # problems: with a hint each, less than a screen of 24 lines


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where (file:line), which dotted key, what, and a way out."""

    what: str
    where: str = ""
    key: str = ""
    hint: str = ""

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.where, self.key) if part)
        text = f"{place}: {self.what}" if place else self.what
        return f"{text}\n    {self.hint}" if self.hint else text


class DlrmxError(Exception):
    """Base of all errors meant for a user: what failed, the numbers, what to try."""

    exit_code = 1

    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(f"{what}\n    {hint}" if hint else what)
        self.what = what
        self.hint = hint


class InputError(DlrmxError):
    """Bad input: every problem found, at once (the text: as many as a screen holds). Nothing was started."""

    exit_code = 2

    def __init__(self, what: str | list[Problem], *, hint: str = "") -> None:
        self.problems = [Problem(what, hint=hint)] if isinstance(what, str) else list(what)
        lines = [str(problem) for problem in self.problems[:MOST_SHOWN]]
        if len(self.problems) > MOST_SHOWN:
            lines.append(f"and {len(self.problems) - MOST_SHOWN:,} more problems like these")
        super().__init__("\n".join(lines))


class ClusterError(DlrmxError):
    """The scheduler cannot be reached or refused the job."""

    exit_code = 3


class Unanswered(ClusterError):
    """The scheduler was asked and did not answer: whether it did what was asked is not known."""


class UnknownRun(DlrmxError):
    """No run, checkpoint or attempt of that name."""

    exit_code = 4
