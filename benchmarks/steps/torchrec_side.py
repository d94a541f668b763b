"""TorchRec's side: python torchrec_side.py WORKLOAD RANK WORLD STORE TYPE PRECISION MODEL, where it is installed.

TYPE: planner, or the one sharding type allowed. PRECISION of its quantised collectives: fp32 or fp16. MODEL of the
dense part: ours, dlrmx's plain torch module, so that both sides multiply the same, or theirs, TorchRec's own DLRM or
DLRM_DCN with the same weights. Its pipeline is not used on CPU: it wants streams.
"""

import sys
from collections.abc import Iterable

import torch
import torch.distributed as dist
from serve import serve, start
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs_registry
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.types import ShardingEnv
from torchrec.models.dlrm import DLRM, DLRM_DCN
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad
from workloads import RATE, WORKLOADS, Workload

from dlrmx.data.batches import Batch
from dlrmx.model.build import Model, build_model
from dlrmx.model.dcnv2 import Dcnv2Model
from dlrmx.model.initial import fill_initial
from dlrmx.recipe.schema import Dcnv2

SEED = 0
CPU = torch.device("cpu")


class Net(nn.Module):
    """Tables, and dlrmx's dense part."""

    def __init__(self, load: Workload) -> None:
        super().__init__()
        self.ebc, self.dense, self.names = tables(load), dense_part(load), load.names

    def forward(self, dense: torch.Tensor, ids: KeyedJaggedTensor) -> torch.Tensor:
        pooled = self.ebc(ids).to_dict()
        logits: torch.Tensor = self.dense(dense, [pooled[name] for name in self.names])
        return logits


class OwnNet(nn.Module):
    """TorchRec's own model, with the values of dlrmx's dense part."""

    def __init__(self, load: Workload) -> None:
        super().__init__()
        model, plain, num_dense = load.recipe(1, {}).model, dense_part(load), len(load.recipe(1, {}).dense)
        if isinstance(model, Dcnv2):
            layers, rank = model.cross_layers, model.cross_rank
            self.net = DLRM_DCN(tables(load), num_dense, list(model.bottom), list(model.top), layers, rank, CPU)
        else:
            self.net = DLRM(tables(load), num_dense, list(model.bottom), list(model.top), CPU)
        assert plain.bottom is not None
        with torch.no_grad():
            _copy(plain.bottom.parameters(), self.net.dense_arch.parameters())
            _copy(plain.top.parameters(), self.net.over_arch.parameters())
            if isinstance(plain, Dcnv2Model):
                cross = self.net.inter_arch.crossnet
                values = dict(plain.cross.named_parameters())
                _copy([value for name, value in values.items() if name.endswith("down.weight")], cross.V_kernels)
                _copy([value for name, value in values.items() if name.endswith("up.weight")], cross.W_kernels)
            else:  # its pairs come in another order
                first = next(iter(self.net.over_arch.parameters()))
                one, other = torch.triu_indices(len(load.rows) + 1, len(load.rows) + 1, offset=1)
                pairs = load.dim + other * (other - 1) // 2 + one
                first.copy_(first[:, torch.cat([torch.arange(load.dim), pairs])])

    def forward(self, dense: torch.Tensor, ids: KeyedJaggedTensor) -> torch.Tensor:
        logits: torch.Tensor = self.net(dense, ids)
        return logits.squeeze(1)


def tables(load: Workload) -> EmbeddingBagCollection:
    configs = [
        EmbeddingBagConfig(name=name, embedding_dim=load.dim, num_embeddings=rows, feature_names=[name])
        for name, rows in zip(load.names, load.rows, strict=True)
    ]
    return EmbeddingBagCollection(tables=configs, device=torch.device("meta"))


def dense_part(load: Workload) -> Model:
    recipe, dims = load.recipe(1, {}), [load.dim] * len(load.names)
    return build_model(recipe.model, dense_dim=len(recipe.dense), dims=dims, seed=SEED)


def _copy(values: Iterable[torch.Tensor], parameters: Iterable[torch.Tensor]) -> None:
    for value, parameter in zip(values, parameters, strict=True):
        parameter.copy_(value)


def of_tables(name: str) -> bool:
    return ".embedding_bags." in name


def build(load: Workload, world: int, kind: str, precision: str, model: str) -> DistributedModelParallel:
    """The model under TorchRec's plan, with the initial values that dlrmx gives it."""
    net = Net(load) if model == "ours" else OwnNet(load)
    in_tables = [parameter for name, parameter in net.named_parameters() if of_tables(name)]
    apply_optimizer_in_backward(RowWiseAdagrad, in_tables, {"lr": RATE, "eps": 1e-8})
    codecs = get_qcomm_codecs_registry(
        QCommsConfig(forward_precision=CommType(precision), backward_precision=CommType(precision)), device=CPU
    )
    sharders = [EmbeddingBagCollectionSharder(qcomm_codecs_registry=codecs if precision != "fp32" else None)]
    constraints = None
    if kind != "planner":
        constraints = {name: ParameterConstraints(sharding_types=[kind]) for name in load.names}
    planner = EmbeddingShardingPlanner(
        topology=Topology(world_size=world, compute_device="cpu", local_world_size=world),
        constraints=constraints,
        batch_size=load.batch,
    )
    plan = planner.collective_plan(net, sharders, dist.group.WORLD)
    parallel = DistributedModelParallel(
        net, env=ShardingEnv.from_process_group(dist.group.WORLD), device=CPU, plan=plan, sharders=sharders
    )
    _fill(parallel, load)
    return parallel


def _fill(model: DistributedModelParallel, load: Workload) -> None:
    rows_of = dict(zip(load.names, load.rows, strict=True))
    for name, value in model.state_dict().items():
        if not of_tables(name):
            continue
        table = name.split(".")[-2]
        if hasattr(value, "local_shards"):
            shards = [(shard.tensor, *shard.metadata.shard_offsets) for shard in value.local_shards()]
        else:
            shards = [(value, 0, 0)]
        for tensor, row, col in shards:
            fill_initial(tensor.detach(), seed=SEED, table=table, rows=rows_of[table], row_start=row, col_start=col)


def to_torch(batch: Batch) -> tuple[torch.Tensor, KeyedJaggedTensor, torch.Tensor]:
    ids = KeyedJaggedTensor(
        keys=list(batch.bags),
        values=torch.cat([torch.from_numpy(bag.ids) for bag in batch.bags.values()]),
        lengths=torch.cat([torch.from_numpy(bag.lengths) for bag in batch.bags.values()]),
    )
    return torch.from_numpy(batch.dense), ids, torch.from_numpy(batch.labels)


def main(name: str, rank: int, world: int, store: str, kind: str, precision: str, whose: str) -> None:
    start(rank, world, store)
    load = WORKLOADS[name]
    model = build(load, world, kind, precision, whose)
    dense = [value for key, value in model.named_parameters() if not of_tables(key)]
    optimizer = torch.optim.SGD(dense, lr=RATE)
    batches = [to_torch(batch) for batch in load.batches(rank)]

    def step(number: int) -> torch.Tensor:
        numbers, ids, labels = batches[number % len(batches)]
        optimizer.zero_grad()
        loss = binary_cross_entropy_with_logits(model(numbers, ids), labels)
        loss.backward()
        optimizer.step()
        return loss.detach() * len(labels)

    serve(step)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
