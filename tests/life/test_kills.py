"""kill -9 of workers, agents, node processes and launchers, at any moment: the run goes on as if nothing had been.

One run takes many kills. After a worker's or an agent's the node process tries again by itself; after a node
process's or a launcher's somebody types `dlrmx resume`. Its end is compared with that of a run that nobody disturbed.
"""

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import pytest

from dlrmx.checkpoint.retain import list_checkpoints
from dlrmx.checkpoint.verify import problems
from dlrmx.runs.claim import is_live
from dlrmx.runs.diagnosis import first_cause
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.state import run_state
from living import House, Process, Role, contents, events, job, kill, newest, steps_saved, wait_for
from training import differing

Moment = Literal["start", "train", "save"]
VICTIMS: tuple[Role, ...] = get_args(Role)
# Half the kills aim at a save: its writing takes a tenth of a second here, the steps between two saves a little more.
AIMS: tuple[Moment, ...] = ("save", "train", "save", "start", "save", "train")
SAVE_S = 0.06
ENDLESS = ("train.stop.steps=1000000", "retry.attempts_without_progress=1000")


@dataclass(frozen=True)
class Kill:
    """What a kill hit. saved: the newest complete checkpoint at that moment; at: the wall clock."""

    victim: Process
    attempt: int
    moment: str
    saved: int
    at: float

    def __str__(self) -> str:
        who = self.victim.role if self.victim.rank is None else f"worker {self.victim.rank}"
        return f"attempt {self.attempt:2}  {who:9} {self.moment:28} newest checkpoint {self.saved}"


def plan_kills(count: int, dice: random.Random) -> list[tuple[Role, Moment]]:
    """Each victim alike often, each aim as AIMS has it, in random order."""
    victims = [VICTIMS[index % len(VICTIMS)] for index in range(count)]
    aims = [AIMS[index % len(AIMS)] for index in range(count)]
    dice.shuffle(victims)
    dice.shuffle(aims)
    return list(zip(victims, aims, strict=True))


def being_saved(run: RunPaths, attempt: int) -> str | None:
    """How far the save that is under way has come; None between two saves."""
    partial = next(run.checkpoints.glob(f".step-*.attempt-{attempt:04d}"), None)
    if partial is None:
        return None
    try:
        sizes = {path.name: path.stat().st_size for path in partial.iterdir()}
    except FileNotFoundError:
        return None
    if "manifest.json" in sizes:
        return "save: before the rename"
    return f"save: {sum(sizes.values()) / 2**20:.0f} MB written" if any(sizes.values()) else None


def await_moment(run: RunPaths, attempt: int, aim: Moment, dice: random.Random) -> None:
    """Return at about the moment that is aimed at; the workers are there already."""
    if aim == "start":
        time.sleep(dice.uniform(0, 1.5))
        return
    wait_for(lambda: events(run, attempt, "begin"))
    time.sleep(dice.uniform(0, 0.5))
    while aim == "save":
        wait_for(lambda: being_saved(run, attempt), every=0.002)
        time.sleep(dice.uniform(0, SAVE_S))
        if being_saved(run, attempt):
            return


def strike(house: House, run: RunPaths, attempt: int, role: Role, aim: Moment, dice: random.Random) -> Kill:
    """Kill one process of the role."""
    wait_for(lambda: len(workers_in(house)) == 2)
    victim = dice.choice([process for process in house.processes() if process.role == role])
    await_moment(run, attempt, aim, dice)
    before = being_saved(run, attempt)
    assert kill(victim.pid)
    at, after = time.time(), being_saved(run, attempt)
    phases = [event["phase"] for event in events(run, attempt, "phase")]
    moment = after if before and after else phases[-1] if phases[-1] != "save" else "save: opened or closed"
    return Kill(victim, attempt, moment, max(steps_saved(run), default=0), at)


def workers_in(house: House) -> set[int]:
    return {process.pid for process in house.processes() if process.role == "worker"}


def nobody_writes(house: House, run: RunPaths) -> None:
    """All processes are gone, at once or when they have saved, and what lies there stays as it is."""
    wait_for(house.empty, seconds=300)
    assert not is_live(run)
    before = contents(run.dir)
    time.sleep(0.3)
    assert contents(run.dir) == before


def goes_on(run: RunPaths, killed: Kill, launcher: "subprocess.Popen[bytes]") -> int:
    """Wait for the next attempt; it must be given the newest checkpoint of all."""
    attempt = run.attempt(killed.attempt + 1)
    wait_for(lambda: attempt.job.exists() or launcher.poll() is not None)
    assert launcher.poll() is None, (killed, run.launch_log.read_text())
    given = job(attempt)
    assert given["from_step"] >= killed.saved, killed
    assert given["checkpoint"] == (str(run.checkpoint(given["from_step"])) if given["from_step"] else None), killed
    return attempt.number


def ended_by(run: RunPaths, killed: Kill) -> None:
    """A dead worker or agent ends its attempt within 10 s, and is what the attempt is said to have died of."""
    (ended,) = wait_for(lambda: events(run, killed.attempt, "attempt_ended"), seconds=300)
    assert ended["time"] - killed.at < 10, killed
    cause = first_cause(run.attempt(killed.attempt))
    assert cause, killed
    assert (cause.rank, cause.cause) == (killed.victim.rank, "killed"), f"{killed}: {cause}"


def chain(house: House, name: str, kills: Sequence[tuple[Role, Moment]], dice: random.Random) -> Iterator[Kill]:
    """Start a run and do to it what is planned; it is running when all is done."""
    run = house.run(name)
    launcher = house.train(name, *ENDLESS)
    attempt = 1
    wait_for(lambda: newest(run))
    for role, aim in kills:
        killed = strike(house, run, attempt, role, aim, dice)
        yield killed
        if role in ("worker", "agent"):
            ended_by(run, killed)
            pids = {event["pid"] for event in events(run, attempt, "worker_started")}
            assert not pids & {process.pid for process in house.processes()}
        else:
            launcher.wait(300)
            nobody_writes(house, run)
            assert run_state(run).state == ("lost" if role == "node" else "stopped"), killed
            good = [info for info in list_checkpoints(run) if info.kind == "checkpoint"]
            assert not any(problems(info.path) for info in good)
            launcher = house.start("resume", name)
        attempt = goes_on(run, killed, launcher)
    wait_for(lambda: events(run, attempt, "saved"))
    stop = house.execute("cancel", name)
    assert launcher.wait(300) == 75, house.stderr(stop)


def survive(house: House, count: int, seed: int) -> list[Kill]:
    """`count` kills of one run, then its end, which must be the undisturbed run's in every bit."""
    dice = random.Random(seed)
    kills = []
    for killed in chain(house, "killed", plan_kills(count, dice), dice):
        print(killed, flush=True)
        kills.append(killed)
    run = house.run("killed")
    end = f"train.stop.steps={steps_saved(run)[-1] + 15}"
    house.execute("resume", "killed", "-s", end)
    assert house.train("undisturbed", end).wait(300) == 0
    assert house.empty()
    for attempt in run.attempts():
        began = [event["step"] for event in events(run, attempt.number, "begin")]
        assert began in ([], [job(attempt)["from_step"]])
    final, other = (max(house.run(name).checkpoints.iterdir()) for name in ("killed", "undisturbed"))
    assert final.name == other.name == f"step-{int(end.partition('=')[2]):08d}"
    assert differing(final, other) == []
    assert [path.name for path in run.checkpoints.iterdir() if path.name.startswith(".")] == []
    assert len(steps_saved(run)) == 2
    count_moments(kills)
    return kills


def count_moments(kills: Sequence[Kill]) -> None:
    table = Counter((killed.victim.role, killed.moment.partition(":")[0]) for killed in kills)
    for (role, moment), count in sorted(table.items()):
        print(f"{role:9} {moment:9} {count}")
    hits = sum(killed.moment.startswith("save: ") and not killed.moment.endswith("closed") for killed in kills)
    print(f"{hits} of {len(kills)} between a save's first byte and its rename")
    assert hits >= 0.4 * len(kills)


@pytest.mark.parametrize("role", ["node", "agent"])
def test_workers_that_only_just_start_do_not_outlive_their_agent(house: House, role: Role) -> None:
    """Importing torch takes them seconds, in which nothing has tied them to it yet."""
    launcher = house.train("early", "retry.attempts_without_progress=1")
    starting = wait_for(lambda: len(workers_in(house)) == 2 and workers_in(house))
    assert not events(house.run("early"), 1, "worker_started")
    (victim,) = (process for process in house.processes() if process.role == role)
    kill(victim.pid)
    assert launcher.wait(300) == 1
    wait_for(lambda: not starting & workers_in(house))
    assert not events(house.run("early"), 1, "worker_started")


def test_a_run_that_is_killed_twelve_times_ends_as_if_it_had_not_been(houses: Callable[..., House]) -> None:
    survive(houses(rows=60_000), 12, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 5))
def test_a_run_that_is_killed_twenty_times_ends_as_if_it_had_not_been(houses: Callable[..., House], seed: int) -> None:
    survive(houses(rows=60_000), 20, seed)
