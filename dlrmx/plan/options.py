"""What the planner may do with each table, and what it would like best."""

from dataclasses import dataclass

from dlrmx.errors import InputError, Problem
from dlrmx.plan.memory import DTYPE_BYTES, Facts, poolings, table_bytes
from dlrmx.plan.shards import Kind, Strip, TablePlan, cut
from dlrmx.recipe.schema import Recipe, Table, TableSharding

# Column slices keep row sums of their own under row-wise AdaGrad, which is another optimizer: only when named.
UNCONSTRAINED: tuple[Kind, ...] = ("data_parallel", "table_wise", "row_wise")
COLUMN_STEP = 4  # fbgemm's kernels want dims that are multiples of 4


@dataclass(frozen=True)
class Ask:
    """What a plan is asked for: the recipe, on `world` ranks of `memory_bytes` each."""

    recipe: Recipe
    world: int
    memory_bytes: int
    facts: Facts | None = None

    @property
    def usable_bytes(self) -> int:
        """Bytes of a rank that a plan may fill."""
        return int(self.memory_bytes * (1 - self.recipe.sharding.reserve))


@dataclass(frozen=True)
class Demand:
    """One table: its size, its use, and the sharding types that it may take."""

    name: str
    table: Table
    pooling: tuple[float, ...]
    allowed: tuple[Kind, ...]
    slices: int
    stored_bytes: int

    @property
    def lookup_cost(self) -> float:
        """Bytes read and returned per sample."""
        elements = sum(mean * DTYPE_BYTES[self.table.dtype] + 4 for mean in self.pooling)
        return elements * self.table.dim

    def cut(self, kind: Kind, *, world: int) -> TablePlan:
        """The table cut as `kind`. Strips of one rank stand on rank 0 until they are placed."""
        rows, dim = self.table.rows, self.table.dim
        strips: tuple[Strip, ...]
        match kind:
            case "data_parallel":
                strips = ()
            case "row_wise":
                strips = (Strip(0, rows, 0, dim, 0, world),)
            case "table_wise":
                strips = (Strip(0, rows, 0, dim, 0, 1),)
            case "column_wise":
                steps = dim // COLUMN_STEP
                cuts = [COLUMN_STEP * cut(steps, self.slices, k) for k in range(self.slices + 1)]
                strips = tuple(Strip(0, rows, cuts[k], cuts[k + 1], 0, 1) for k in range(self.slices))
        return TablePlan(rows, dim, self.table.dtype, kind, strips=strips)


def enumerate_demands(ask: Ask) -> list[Demand]:
    """Each table with what the recipe lets the planner do. Raises InputError where a constraint asks the impossible."""
    recipe = ask.recipe
    means = poolings(recipe, ask.facts)
    optimizer = recipe.optimizer.sparse.kind
    demands, problems = [], []
    for name, table in recipe.tables.items():
        constraint = recipe.sharding.tables.get(name)
        most = table.dim // COLUMN_STEP
        allowed, slices = UNCONSTRAINED, min(ask.world, most)
        if constraint:
            allowed, slices = tuple(constraint.types), constraint.slices or slices
            problems += _column_problems(name, table.dim, constraint)
        if most == 1 and len(allowed) > 1:
            allowed = tuple(kind for kind in allowed if kind != "column_wise")
        demands.append(Demand(name, table, tuple(means[name]), allowed, slices, table_bytes(table, optimizer)))
    if problems:
        raise InputError(problems)
    return demands


def _column_problems(name: str, dim: int, constraint: TableSharding) -> list[Problem]:
    """What column slices the constraint asks for that the table's dim does not allow."""
    most = dim // COLUMN_STEP
    if constraint.types == ["column_wise"] and most == 1:
        key, what = "types", f"column_wise cannot cut table '{name}': dim {dim} is one step of {COLUMN_STEP} columns"
        hint = f"take table_wise or row_wise, or a dim of at least {2 * COLUMN_STEP}"
    elif "column_wise" in constraint.types and (constraint.slices or 0) > most:
        key, what = "slices", f"{constraint.slices} column slices of table '{name}': dim {dim} allows at most {most}"
        hint = f"slices are multiples of {COLUMN_STEP} columns; take at most {most}"
    else:
        return []
    return [Problem(what, key=f"sharding.tables.{name}.{key}", hint=hint)]


def choose(demand: Demand, ask: Ask, *, large_bytes: float) -> Kind:
    """The best type that the table may take, cut where it holds more than `large_bytes`.

    data_parallel where the all-reduce of its gradient, 2 (W - 1) / W x rows x dim, moves less per rank than its
    features' vectors there and back, 2 (W - 1) / W x (batch / W) x dim for each.
    """
    rows, world = demand.table.rows, ask.world
    small = world > 1 and rows * world < ask.recipe.train.batch * len(demand.pooling)
    large = demand.stored_bytes > large_bytes and 1 < world <= rows
    cutting: tuple[Kind, ...] = ("row_wise", "column_wise", "table_wise")
    whole: tuple[Kind, ...] = ("table_wise", "row_wise", "column_wise")
    ranking = cutting if large else whole
    ranking = ("data_parallel", *ranking) if small else (*ranking, "data_parallel")
    return next(kind for kind in ranking if kind in demand.allowed)
