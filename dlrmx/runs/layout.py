"""The names of all files of a run: the only place where such a name is spelled.

<root>/<name>-<n>/
    run.json                     what the run is and how it ended
    lock                         held (flock) by the live node process
    launch.log                   what the node processes printed themselves
    copy.json                    only in a copy of a run that this machine cannot see: whether that is live
    job.sh                       the script of a batch scheduler's job, as it was submitted last
    recipe.yaml                  the recipe of a cluster's job, as it was submitted last
    attempts/0001/               one start of the job, frozen once it ended
        recipe.yaml plan.json job.json
        request.stop             asks the workers to save and stop
        events.jsonl records.jsonl logs/node-0.log
        events-node-1.jsonl      what node 1 wrote; node 0's process takes it over into events.jsonl
    checkpoints/
        step-00001000/                          manifest.json + safetensors
        .step-00001000.attempt-0001/            a save that has not been committed
        .step-00001000.attempt-0001.replaced/   what attempt 1 saved again, until its own is committed
        .step-00001000.attempt-0001.removed/    what attempt 1 is deleting
        step-00001000.aside-0002/               what attempt 2, which began before it, does not count
<root>/prepared/<fingerprint>/   prepared data, shared by runs
"""

import re
from dataclasses import dataclass
from pathlib import Path

STEP_DIR = re.compile(r"^step-(\d{8,})$")
LEFTOVER_DIR = re.compile(r"^\.step-(\d{8,})\.attempt-(\d{4,})(?:\.(replaced|removed))?$")
ASIDE_DIR = re.compile(r"^step-(\d{8,})\.aside-(\d{4,})$")


@dataclass(frozen=True)
class AttemptPaths:
    """The files of one attempt. node: whose events, as every node writes a file of its own."""

    dir: Path
    node: int = 0

    @property
    def number(self) -> int:
        return int(self.dir.name)

    @property
    def recipe(self) -> Path:
        return self.dir / "recipe.yaml"

    @property
    def plan(self) -> Path:
        return self.dir / "plan.json"

    @property
    def job(self) -> Path:
        return self.dir / "job.json"

    @property
    def stop_request(self) -> Path:
        return self.dir / "request.stop"

    @property
    def events(self) -> Path:
        return self.dir / ("events.jsonl" if self.node == 0 else f"events-node-{self.node}.jsonl")

    @property
    def records(self) -> Path:
        return self.dir / "records.jsonl"

    @property
    def logs(self) -> Path:
        return self.dir / "logs"

    @property
    def log(self) -> Path:
        return self.node_log(self.node)

    def node_log(self, node: int) -> Path:
        return self.logs / f"node-{node}.log"


@dataclass(frozen=True)
class RunPaths:
    """The files of one run."""

    dir: Path

    @property
    def name(self) -> str:
        return self.dir.name

    @property
    def run(self) -> Path:
        return self.dir / "run.json"

    @property
    def lock(self) -> Path:
        return self.dir / "lock"

    @property
    def launch_log(self) -> Path:
        return self.dir / "launch.log"

    @property
    def copy(self) -> Path:
        return self.dir / "copy.json"

    @property
    def job_script(self) -> Path:
        return self.dir / "job.sh"

    @property
    def recipe(self) -> Path:
        return self.dir / "recipe.yaml"

    @property
    def checkpoints(self) -> Path:
        return self.dir / "checkpoints"

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:08d}"

    def partial_checkpoint(self, step: int, attempt: int) -> Path:
        """Where an attempt writes a checkpoint before the rename that publishes it."""
        return self.checkpoints / f".step-{step:08d}.attempt-{attempt:04d}"

    def replaced_checkpoint(self, step: int, attempt: int) -> Path:
        """Where an attempt puts an earlier checkpoint of the same step while it publishes its own."""
        return self.checkpoints / f".step-{step:08d}.attempt-{attempt:04d}.replaced"

    def removed_checkpoint(self, step: int, attempt: int) -> Path:
        """What an attempt renames a checkpoint to before it deletes the files."""
        return self.checkpoints / f".step-{step:08d}.attempt-{attempt:04d}.removed"

    def aside_checkpoint(self, step: int, attempt: int) -> Path:
        """Where a checkpoint goes that is later than the step which an attempt was told to begin from."""
        return self.checkpoints / f"step-{step:08d}.aside-{attempt:04d}"

    def attempt(self, number: int, node: int = 0) -> AttemptPaths:
        return AttemptPaths(self.dir / "attempts" / f"{number:04d}", node)

    def attempts(self) -> list[AttemptPaths]:
        """All attempts, oldest first."""
        found = [path for path in (self.dir / "attempts").glob("[0-9]*") if path.name.isdecimal() and path.is_dir()]
        return [AttemptPaths(path) for path in sorted(found, key=lambda path: int(path.name))]


def prepared_dir(root: Path, fingerprint: str) -> Path:
    """Where a prepared dataset lies: shared by all runs whose data section is the same."""
    return root / "prepared" / fingerprint
