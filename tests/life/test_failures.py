"""Real runs that fail: a rank that dies ends its attempt soon and is named first; a crash that repeats ends the run."""

import signal
import time

from dlrmx.runs.events import read_events
from dlrmx.runs.state import run_state
from living import House, contents, events, kill, wait_for

ENDLESS = ("train.stop.steps=1000000", "retry.attempts_without_progress=1", "checkpoint.every=null")
ROWS_BEFORE = 50 * 16


def workers(house: House, name: str) -> dict[int, int]:
    """Rank -> pid, once training has begun."""
    run = house.run(name)
    wait_for(lambda: events(run, 1, "begin"))
    return {event["rank"]: event["pid"] for event in events(run, 1, "worker_started")}


def test_a_rank_that_dies_while_another_hangs_ends_the_attempt_within_ten_seconds(house: House) -> None:
    launcher = house.train("dying", *ENDLESS)
    pids = workers(house, "dying")
    kill(pids[0], signal.SIGSTOP)
    kill(pids[1])
    died = time.time()
    assert launcher.wait(300) == 1
    (ended,) = events(house.run("dying"), 1, "attempt_ended")
    assert ended["time"] - died < 10
    wait_for(house.empty, seconds=5)
    first = house.stderr(launcher).partition("error: ")[2].splitlines()[0]
    host = ended["host"]
    assert first.startswith(f"dying failed: rank 1 on {host} at step ")
    assert first.endswith(f": pid {pids[1]} on {host} was killed by SIGKILL: out of memory?")
    status = house.stdout(house.execute("status", "dying"))
    assert "\ndiagnosis    killed: nobody said why: most often the system ran out of memory." in status


def table(house: House, huge_at: int) -> None:
    """A recipe of tabular data in stored order; the dense value of one row overflows in the cross network's product."""
    lines = ["label,x,a"]
    lines += [f"{row % 2},{'3e38' if row == huge_at else row % 5},v{row % 7}" for row in range(ROWS_BEFORE + 320)]
    (house.dir / "rows.csv").write_text("\n".join(lines) + "\n")
    house.recipe.write_text("""\
dlrmx: 1
data:
  {kind: tabular, files: [rows.csv], label: {column: label}, split: {validation: 0, test: 0}, order: as_stored}
dense: {x: {}}
features: {a: {}}
tables: {a: {rows: 100, dim: 4}}
model: {kind: dcnv2, bottom: [8, 4], top: [8, 1], cross_layers: 1, cross_rank: 2}
optimizer: {dense: {kind: sgd, lr: 0.1}, sparse: {kind: rowwise_adagrad, lr: 0.1}}
train: {batch: 16, stop: {steps: 70}, evaluate: {at_end: null}}
checkpoint: {every: {steps: 25}}
""")


def test_a_nan_that_comes_again_stops_the_run_after_two_attempts(house: House) -> None:
    table(house, ROWS_BEFORE + 3)
    launcher = house.train("overflow")
    run = house.run("overflow")
    wait_for(lambda: events(run, 1, "attempt_ended"), every=0.002)
    after_first = contents(run.checkpoints)
    assert launcher.wait(300) == 1
    state = run_state(run)
    assert (state.state, state.exit_code, state.attempt, state.checkpoint) == ("failed", 1, 2, 50)
    assert [events(run, attempt, "begin")[0]["step"] for attempt in (1, 2)] == [0, 50]
    assert contents(run.checkpoints) == after_first, "the second attempt has saved nothing"
    assert read_events(run.attempt(2), "gave_up")
    lines = house.stderr(launcher).partition("error: ")[2].splitlines()
    assert lines[0].startswith("overflow failed: rank 0 on ")
    assert (
        "at step 50: NonFinite: the loss is not finite at step 50 on rank 0 (batch: epoch 0, rows 800 to 808)"
        in lines[0]
    )
    assert any("two attempts in a row ended at step 50 for one cause (NonFinite)" in line for line in lines)
    status = house.stdout(house.execute("status", "overflow")).splitlines()
    assert status[1].startswith("first cause  attempt 2, rank 0 on ")
    assert any(line.startswith("diagnosis    NaN or infinity: ") for line in status)
    assert any(line.startswith("earlier      attempt 1, rank 0 on ") for line in status)
    assert f"checkpoint   {run.checkpoint(50)}" in status
    assert any(line.startswith("  dlrmx data show ") for line in status)
    assert house.empty()
