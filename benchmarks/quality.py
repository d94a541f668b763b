"""What thresholds cost in quality and save in bytes, beside other ways to send less.

    .venv/bin/python benchmarks/quality.py run TASK SEED RESULTS SECONDS    trains cases that RESULTS lacks, for so long

Two processes with one thread each train every case by the product's own path, and append what came out to RESULTS, a
file of JSON lines, so that it can be stopped and gone on with. Random-k, a thresholding that forgets what it held back
and the controls are no settings of the product: each replaces one function of it, here. benchmarks/quality_page.py
makes tables and a plot of the results.
"""

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # what starts ranks lies there

import torch

from dlrmx.data.prepare import prepare
from dlrmx.parallel.dense import DensePart
from dlrmx.parallel.embeddings import Embeddings
from dlrmx.parallel.exchange import Exchange
from dlrmx.parallel.sparse_hop import PendingSparseVectors, Sums, Travelled
from dlrmx.parallel.sparse_sum import PendingSparseSum, SparseSum
from dlrmx.parallel.sparse_vectors import SparseWay
from dlrmx.parallel.wire import Kind, Link, Wire
from dlrmx.plan.planner import make_plan
from dlrmx.plan.style import FEWEST
from dlrmx.plan.topology import topology_of
from dlrmx.recipe.fingerprint import fingerprint
from dlrmx.recipe.load import load_recipe
from dlrmx.recipe.profiles import LocalProfile
from dlrmx.recipe.schema import Recipe
from dlrmx.runs.claim import claim_attempt, create_run
from dlrmx.runs.layout import RunPaths
from dlrmx.train.build import build_parts
from dlrmx.train.evaluate import evaluate
from dlrmx.train.session import Clock, Session, Task
from dlrmx.train.worker import work
from ranks import run_ranks

RECIPES = Path(__file__).resolve().parent.parent / "recipes"
EVERY = {"movielens_100k": 50, "planted_ctr": 100}  # steps between two thresholds: about six of them in each task
SPARSITIES = (0.5, 0.75, 0.9, 0.95, 0.99, 0.995)
WORLD = 2
PLACES = {"dense": ("dense",), "forward": ("forward",), "backward": ("backward",), "both": ("forward", "backward")}


@dataclass(frozen=True)
class Case:
    """One training. method: one of METHODS; dense, forward, backward: sparsity of what is thresholded.

    values: the wire format; vectors: that of vectors and their gradients, gradients: of these alone, if it is another.
    """

    task: str
    seed: int
    method: str = "thresholds"
    dense: float | None = None
    forward: float | None = None
    backward: float | None = None
    every: int = 1
    values: str = "fp32"
    world: int = WORLD
    vectors: str | None = None
    gradients: str | None = None

    @property
    def recipe(self) -> Recipe:
        """The shipped recipe with the case's exchange, every table whole on one rank, and no checkpoints."""
        path = RECIPES / f"{self.task}.yaml"
        settings = [
            f"seed={self.seed}",
            "checkpoint.save=false",
            "train.evaluate.every=null",
            "log.every.steps=1000000",
        ]
        for table in load_recipe(path, []).recipe.tables:
            settings.append(f"sharding.tables.{table}.types=[table_wise]")
        vectors = self.vectors or self.values
        formats = {"dense": self.values, "forward": vectors, "backward": self.gradients or vectors}
        for place in formats:
            settings.append(f"exchange.{place}={formats[place]}")
            if (sparsity := getattr(self, place)) is not None:
                settings.append(f"exchange.threshold.{place}.sparsity={sparsity}")
                settings.append(f"exchange.threshold.{place}.every={self.every}")
        return load_recipe(path, [*settings, "train.evaluate.at_end=null"]).recipe


# ----------------------------------------------------------------- what is no setting: one function replaced each


@contextmanager
def replaced(*what: tuple[type, str, Callable[..., Any]]) -> Iterator[None]:
    """(class, method, function): the function stands for the method."""
    with ExitStack() as stack:
        for owner, name, function in what:
            stack.enter_context(patch.object(owner, name, function))
        yield


def random_dense(self: SparseSum, entries: torch.Tensor) -> torch.Tensor:
    """Random-k: each entry of a thresholded parameter by chance, as many as are wanted in the mean."""
    share = (self._sizes < FEWEST).to(torch.float32).clamp(min=1 - self._settings.sparsity)
    return torch.rand_like(entries) < torch.repeat_interleave(share, self._sizes)


def random_vectors(self: SparseWay, values: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
    """Random-k of vectors or their gradients."""
    return torch.rand_like(values) < 1 - self._threshold.sparsity


_start = SparseSum.start


def forgetful_start(self: SparseSum, gradient: torch.Tensor, *, step: int) -> PendingSparseSum:
    """No error feedback: what was held back is lost."""
    self.residual.zero_()
    return _start(self, gradient, step=step)


def frozen_step(self: DensePart, factor: float) -> None:
    """The dense part keeps its initial values."""


def dropped_update(self: Exchange, pooled: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
    """The tables keep their initial values."""


_features = Embeddings.features


def mean_features(self: Embeddings, *boundary: Any) -> list[torch.Tensor]:
    """Each vector is the mean of its feature's vectors in the batch: it says nothing of the sample."""
    return [vectors.mean(0).expand_as(vectors) for vectors in _features(self, *boundary)]


_wait = PendingSparseVectors.wait


def unmasked_wait(self: PendingSparseVectors) -> Sums:
    """Gradients of all entries may travel, also of those that were not sent forward."""
    whole = Travelled(torch.arange(sum(self.pending.sent_lengths)), torch.arange(sum(self.pending.lengths)))
    return Sums(_wait(self).leaves, whole)


METHODS: dict[str, tuple[tuple[type, str, Callable[..., Any]], ...]] = {
    "thresholds": (),
    "random-k": ((SparseSum, "keep", random_dense), (SparseWay, "over", random_vectors)),
    "forgetful": ((SparseSum, "start", forgetful_start),),
    "unmasked": ((PendingSparseVectors, "wait", unmasked_wait),),
    "frozen": ((DensePart, "step", frozen_step),),
    "dropped": ((Exchange, "update", dropped_update),),
    "mean": ((Embeddings, "features", mean_features),),
}


# ---------------------------------------------------------------------------------------------------- training


class CountingWire(Wire):
    """A wire that also keeps what it has sent since `sent` was cleared."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: Counter[tuple[Kind, Link]] = Counter()

    def take_traffic(self) -> Counter[tuple[Kind, Link]]:
        taken = super().take_traffic()
        self.sent.update(taken)
        return taken


def train(wire: CountingWire, case: Case, data: Path, root: Path) -> dict[str, Any]:
    """Train a case on all ranks; on rank 0 what came out of it. Collective."""
    torch.manual_seed(case.seed * wire.world + wire.rank)
    recipe, began = case.recipe, time.monotonic()
    plan = make_plan(recipe, topology_of(LocalProfile(workers_per_node=wire.world)))
    if wire.rank == 0:
        claim_attempt(create_run(root, recipe.name, "run", fingerprint(recipe)))
    wire.agree(0)  # the run is there
    run = RunPaths(root / "run")
    parts = build_parts(recipe, plan, wire=wire, dense_dim=len(recipe.dense), device=torch.device("cpu"))
    session = Session(Task(run, run.attempt(1), recipe, plan, data, None, None), parts, Clock())
    wire.take_traffic()
    wire.sent.clear()
    with replaced(*METHODS[case.method]):
        work(session)
        bytes_sent = _by_kind(wire)
        found = {
            split: evaluate(parts, session.split(split), batch=recipe.train.batch, step=session.clock.step or 0)
            for split in ("validation", "test")
        }
    steps = (session.clock.step or 0) + 1
    result: dict[str, Any] = {"steps": steps, "seconds": round(time.monotonic() - began, 1)}
    result["bytes"] = {kind: count / steps / wire.world for kind, count in bytes_sent.items()}
    for split, metrics in found.items():
        if metrics is not None:
            result[split] = {"ne": metrics.ne, "auc": metrics.auc}
    return result


def _by_kind(wire: CountingWire) -> dict[str, float]:
    """Bytes that all ranks sent to others, by kind. Collective."""
    kinds: tuple[Kind, ...] = ("ids", "vectors", "gradients", "dense")
    own = torch.tensor([[float(sum(wire.sent[kind, link] for link in ("up", "out"))) for kind in kinds]]).double()
    rows = wire.gather(own)
    return {} if rows is None else dict(zip(kinds, rows.sum(0).tolist(), strict=True))


def train_all(cases: Sequence[Case], data: Path, results: Path, seconds: float) -> None:
    """Train one case after the other until so many seconds are over; rank 0 appends to `results`. Collective."""
    wire, began = CountingWire(), time.monotonic()
    for case in cases:
        if wire.agree(int(time.monotonic() - began > seconds)):
            return
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) if wire.rank == 0 else None
            found = train(wire, case, data, _shared(wire, root))
        if wire.rank == 0:
            with results.open("a") as file:
                file.write(json.dumps({**asdict(case), **found}) + "\n")


def _shared(wire: Wire, root: Path | None) -> Path:
    """Rank 0's folder, on all ranks. Collective."""
    every: list[Path | None] = [None] * wire.world
    torch.distributed.all_gather_object(every, root, group=wire.group("control"))
    assert every[0] is not None
    return every[0]


# ------------------------------------------------------------------------------------------------------- cases


def cases(task: str, seed: int) -> list[Case]:
    """All cases of a task and seed, those that carry a claim first."""
    every = EVERY[task]

    def case(method: str = "thresholds", places: str = "", sparsity: float = 0.0, **more: Any) -> Case:
        thresholds = dict.fromkeys(PLACES.get(places, ()), sparsity)
        return Case(task, seed, method, **{"every": every if thresholds else 1, **thresholds, **more})

    found = [case()]
    found += [case(places=place, sparsity=sparsity) for place in PLACES for sparsity in SPARSITIES]
    found += [case("frozen"), case("dropped"), case("mean"), case(values="fp16"), case(values="int8")]
    # What sends a hundredth of the dense gradients' bytes, and a twentieth of the others'.
    found += [case(places="dense", sparsity=0.998, every=200, values="fp16")]
    found += [case(places="forward", sparsity=0.925, values="fp16")]
    found += [case(vectors="int4"), case(vectors="sign"), case(vectors="int4", gradients="sign")]
    # What is fastest on a slow link.
    found += [case(places="dense", sparsity=0.999, every=200, values="fp16", vectors="int4")]
    found += [case("unmasked", place, sparsity) for place in ("forward", "both") for sparsity in SPARSITIES]
    found += [case(places=place, sparsity=sparsity, every=1) for place in PLACES for sparsity in SPARSITIES]
    found += [case(places=place, sparsity=0.0) for place in PLACES]
    found += [case(places="dense", sparsity=0.99, every=steps) for steps in (10, 1000)]
    found += [case("forgetful", "dense", sparsity) for sparsity in SPARSITIES]
    found += [case("random-k", place, sparsity) for place in PLACES for sparsity in SPARSITIES]
    return found


def missing(wanted: Sequence[Case], results: Path) -> list[Case]:
    """The cases that have no result yet."""
    lines = results.read_text().splitlines() if results.exists() else []
    names = set(Case.__dataclass_fields__)
    done = {Case(**{key: value for key, value in json.loads(line).items() if key in names}) for line in lines}
    return [case for case in wanted if case not in done]


def main(task: str, seed: int, results: Path, seconds: float) -> None:
    """Train what is missing; the data are those of seed 0, and lie beside the results."""
    data = prepare(load_recipe(RECIPES / f"{task}.yaml", []).recipe, results.parent)
    todo = missing(cases(task, seed), results)
    print(f"{task}, seed {seed}: {len(todo)} cases to go")
    run_ranks(WORLD, train_all, todo, data, results, seconds)


if __name__ == "__main__":
    main(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]), float(sys.argv[5]))
