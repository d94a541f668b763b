"""TorchRec's side: python torchrec_side.py WORKLOAD RANK WORLD STORE TYPE PRECISION, in an environment that has it.

TYPE: planner, or the one sharding type allowed. PRECISION of its quantised collectives: fp32 or fp16. Its pipeline is
not used on CPU: it wants streams. The dense model is dlrmx's own plain torch module, so both sides multiply the same.
"""

import sys

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
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad
from workloads import RATE, WORKLOADS, Workload

from dlrmx.data.batches import Batch
from dlrmx.model.build import build_model
from dlrmx.model.initial import fill_initial

SEED = 0
CPU = torch.device("cpu")


class Net(nn.Module):
    """Tables and dense part."""

    def __init__(self, load: Workload) -> None:
        super().__init__()
        recipe = load.recipe(1, {})
        configs = [
            EmbeddingBagConfig(name=name, embedding_dim=load.dim, num_embeddings=rows, feature_names=[name])
            for name, rows in zip(load.names, load.rows, strict=True)
        ]
        self.ebc = EmbeddingBagCollection(tables=configs, device=torch.device("meta"))
        self.names = load.names
        self.dense = build_model(
            recipe.model, dense_dim=len(recipe.dense), dims=[load.dim] * len(load.names), seed=SEED
        )

    def forward(self, dense: torch.Tensor, ids: KeyedJaggedTensor) -> torch.Tensor:
        pooled = self.ebc(ids).to_dict()
        logits: torch.Tensor = self.dense(dense, [pooled[name] for name in self.names])
        return logits


def build(load: Workload, world: int, kind: str, precision: str) -> DistributedModelParallel:
    """The model under TorchRec's plan, with the initial values that dlrmx gives it."""
    net = Net(load)
    apply_optimizer_in_backward(RowWiseAdagrad, net.ebc.parameters(), {"lr": RATE, "eps": 1e-8})
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
    model = DistributedModelParallel(
        net, env=ShardingEnv.from_process_group(dist.group.WORLD), device=CPU, plan=plan, sharders=sharders
    )
    _fill(model, load)
    return model


def _fill(model: DistributedModelParallel, load: Workload) -> None:
    rows_of = dict(zip(load.names, load.rows, strict=True))
    for name, value in model.state_dict().items():
        if ".embedding_bags." not in name:
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


def main(name: str, rank: int, world: int, store: str, kind: str, precision: str) -> None:
    start(rank, world, store)
    load = WORKLOADS[name]
    model = build(load, world, kind, precision)
    dense = [value for key, value in model.named_parameters() if "ebc" not in key]
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
