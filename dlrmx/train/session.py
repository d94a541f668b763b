"""What a worker works on: its run and attempt, the recipe and plan they were given, and what was built from them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlrmx import __version__
from dlrmx.data.batches import Split
from dlrmx.errors import InputError
from dlrmx.plan.shards import Plan
from dlrmx.recipe.load import read_frozen
from dlrmx.recipe.schema import Recipe
from dlrmx.runs.events import append_event
from dlrmx.runs.layout import AttemptPaths, RunPaths
from dlrmx.train.step import Parts


@dataclass(frozen=True)
class Evaluation:
    """What is to be evaluated, and not trained. split: of the prepared data; shown: what records call it.

    predict: the file that the scores go to. by_file: the rows are of files of their own, each with metrics.
    """

    split: str
    shown: str
    predict: Path | None = None
    by_file: bool = False

    @classmethod
    def of(cls, asked: dict[str, str]) -> "Evaluation":
        """That of a job. The rows of files of its own are all in the training split, as they were never split."""
        predict = Path(asked["predict"]) if "predict" in asked else None
        by_file = "trained_on" in asked
        return cls("train" if by_file else asked["split"], asked["split"], predict, by_file)


@dataclass(frozen=True)
class Task:
    """An attempt's frozen inputs."""

    run: RunPaths
    attempt: AttemptPaths
    recipe: Recipe
    plan: Plan
    data: Path
    checkpoint: Path | None
    evaluate: Evaluation | None

    @classmethod
    def read(cls, run_dir: Path, number: int) -> "Task":
        """Read what the node process wrote. Raises InputError where it is of another dlrmx."""
        run = RunPaths(run_dir)
        attempt = run.attempt(number)
        job: dict[str, Any] = json.loads(attempt.job.read_text())
        if job["dlrmx"] != __version__:
            raise InputError(
                f"attempt {number} is of dlrmx {job['dlrmx']}, this worker is {__version__}",
                hint="all nodes need the version that opened the attempt; `dlrmx resume` opens one under the present",
            )
        return cls(
            run=run,
            attempt=attempt,
            recipe=read_frozen(attempt.recipe),
            plan=Plan.from_json(attempt.plan.read_text()),
            data=Path(job["data"]),
            checkpoint=Path(job["checkpoint"]) if job["checkpoint"] else None,
            evaluate=Evaluation.of(job["evaluate"]) if job["evaluate"] else None,
        )

    def stop_asked(self) -> bool:
        """Whether somebody asked this attempt to save and stop."""
        return self.attempt.stop_request.exists()


@dataclass
class Clock:
    """The step that is being worked on; None before the first."""

    step: int | None = None


@dataclass(frozen=True)
class Session:
    """A task and what this rank built for it."""

    task: Task
    parts: Parts
    clock: Clock

    @property
    def leads(self) -> bool:
        """Rank 0 alone writes records and events of the whole."""
        return self.parts.wire.rank == 0

    def tell(self, event: str, **fields: Any) -> None:
        """Write an event, on rank 0."""
        if self.leads:
            append_event(self.task.attempt, event, **fields)

    def split(self, name: str) -> Split:
        """A split of the prepared data. Raises InputError where it was prepared for other tables."""
        split, recipe = Split(self.task.data, name), self.task.recipe
        rows = {name: recipe.tables[feature.table].rows for name, feature in recipe.features.items()}
        if split.table_rows != rows:
            different = next(
                name for name in {**rows, **split.table_rows} if rows.get(name) != split.table_rows.get(name)
            )
            raise InputError(
                f"{self.task.data}: prepared for a table of {split.table_rows.get(different, 0):,} rows for feature "
                f"{different}, the recipe has {rows.get(different, 0):,}",
                hint="prepare the data of this recipe: `dlrmx data prepare`",
            )
        return split
