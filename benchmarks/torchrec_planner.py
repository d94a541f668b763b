"""TorchRec's planner on tables and a topology given as JSON: `python torchrec_planner.py IN OUT`, where TorchRec is.

IN has `world`, `ranks_per_node`, `local_batch`, `topology` (bytes, bytes per second), `tables` (name, rows, dim,
pooling, fp16) and `plans`: other planners' plans, each table's `type` and `shards` as [row, column, rows, columns,
rank]. OUT gets `seconds` of TorchRec's planning, its plan in that form, and `ratings`: what TorchRec's estimator says
of its own and of each plan, in ms on the busiest rank. It imports nothing of dlrmx.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.planner.enumerators import get_partition_by_type
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.shard_estimators import EmbeddingPerfEstimator
from torchrec.distributed.planner.types import ParameterConstraints, Shard, ShardingOption
from torchrec.distributed.planner.utils import build_sharder_data_map, sharder_name
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection


def main(source: Path, target: Path) -> None:
    """Plan, and rate all plans."""
    asked = json.loads(source.read_text())
    topology = _topology(asked)
    collection, constraints = _collection(asked["tables"]), _constraints(asked["tables"])
    sharder = EmbeddingBagCollectionSharder(fused_params={"optimizer": EmbOptimType.EXACT_ROWWISE_ADAGRAD})
    planner = EmbeddingShardingPlanner(
        topology=topology, batch_size=asked["local_batch"], constraints=constraints, debug=False
    )
    began = time.perf_counter()
    planner.plan(collection, [sharder])
    seconds = time.perf_counter() - began
    best = planner._best_plan
    ratings = {"torchrec": NoopPerfModel(topology).rate(best)}
    like = {option.name: option for option in best}
    for name, plan in asked["plans"].items():
        options = [_option(table, entry, like[table]) for table, entry in plan.items()]
        estimator = EmbeddingPerfEstimator(topology=topology, constraints=constraints)
        estimator.estimate(options, build_sharder_data_map({sharder_name(EmbeddingBagCollection): sharder}))
        ratings[name] = NoopPerfModel(topology).rate(options)
    plan = {option.name: _entry(option) for option in best}
    target.write_text(json.dumps({"seconds": seconds, "plan": plan, "ratings": ratings}))


def _topology(asked: dict[str, Any]) -> Topology:
    """TorchRec counts in bytes per millisecond."""
    given = asked["topology"]
    return Topology(
        world_size=asked["world"],
        local_world_size=asked["ranks_per_node"],
        compute_device="cuda",
        hbm_cap=int(given["hbm_bytes"]),
        ddr_cap=int(given["ddr_bytes"]),
        hbm_mem_bw=given["hbm_rate"] / 1000,
        ddr_mem_bw=given["ddr_rate"] / 1000,
        hbm_to_ddr_mem_bw=given["host_rate"] / 1000,
        intra_host_bw=given["up_rate"] / 1000,
        inter_host_bw=given["out_rate"] / 1000,
    )


def _collection(tables: list[dict[str, Any]]) -> EmbeddingBagCollection:
    configs = [
        EmbeddingBagConfig(
            name=table["name"],
            num_embeddings=table["rows"],
            embedding_dim=table["dim"],
            feature_names=[table["name"]],
            data_type=DataType.FP16 if table["fp16"] else DataType.FP32,
        )
        for table in tables
    ]
    return EmbeddingBagCollection(tables=configs, device=torch.device("meta"))


def _constraints(tables: list[dict[str, Any]]) -> dict[str, ParameterConstraints]:
    return {table["name"]: ParameterConstraints(pooling_factors=[table["pooling"]]) for table in tables}


def _option(name: str, entry: dict[str, Any], like: ShardingOption) -> ShardingOption:
    """Another plan's table as TorchRec would have it."""
    return ShardingOption(
        name=name,
        tensor=like.tensor,
        module=like.module,
        input_lengths=like.input_lengths,
        batch_size=like.batch_size,
        sharding_type=entry["type"],
        partition_by=get_partition_by_type(entry["type"]),
        compute_kernel="dense" if entry["type"] == "data_parallel" else "fused",
        shards=[
            Shard(size=[rows, cols], offset=[row, col], rank=rank) for row, col, rows, cols, rank in entry["shards"]
        ],
        feature_names=like.feature_names,
        output_dtype=like.output_dtype,
        num_poolings=like.num_poolings,
    )


def _entry(option: ShardingOption) -> dict[str, Any]:
    shards = [[*shard.offset, *shard.size, shard.rank] for shard in option.shards]
    return {"type": option.sharding_type, "kernel": option.compute_kernel, "shards": shards}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
