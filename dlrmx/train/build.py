"""Builds what a rank trains with, in written order: the plain model, the tables, the flat dense part."""

import torch

from dlrmx.errors import InputError
from dlrmx.model.build import build_model
from dlrmx.parallel.codec import Codecs
from dlrmx.parallel.dense import DensePart
from dlrmx.parallel.embeddings import Embeddings
from dlrmx.parallel.sparse_sum import SparseSum
from dlrmx.parallel.wire import Wire
from dlrmx.plan.shards import Plan
from dlrmx.recipe.schema import Recipe
from dlrmx.train.stages import Stages
from dlrmx.train.step import Parts


def build_parts(recipe: Recipe, plan: Plan, *, wire: Wire, dense_dim: int, device: torch.device) -> Parts:
    """The model and its tables under `plan`. The dense part has its initial values; the tables have none yet.

    Raises InputError where a table is to lie in memory that the device has not.
    """
    _refuse_tiers(plan, device)
    dims = [recipe.tables[feature.table].dim for feature in recipe.features.values()]
    model = build_model(recipe.model, dense_dim=dense_dim, dims=dims, seed=recipe.seed).to(device)
    codecs = Codecs(recipe.exchange)
    embeddings = Embeddings(
        plan,
        recipe.features,
        recipe.optimizer.sparse,
        wire=wire,
        device=device,
        codecs=codecs,
        thresholds=recipe.exchange.threshold,
    )
    threshold = recipe.exchange.threshold.dense
    sizes = [parameter.numel() for parameter in model.parameters()]
    sparse = None if threshold is None else SparseSum(threshold, sizes, wire, device, codecs.dense)
    extra = embeddings.replicated.num_gradients
    dense = DensePart(model, recipe.optimizer.dense, extra=extra, sparse=sparse, codec=codecs.dense, wire=wire)
    return Parts(
        wire=wire,
        model=model,
        dense=dense,
        embeddings=embeddings,
        codecs=codecs,
        stages=Stages(),
        device=device,
        autocast=torch.bfloat16 if recipe.train.precision == "bf16" else None,
        chunks=recipe.exchange.chunks,
    )


def _refuse_tiers(plan: Plan, device: torch.device) -> None:
    if device.type == "cuda":
        return
    for name, table in plan.tables.items():
        for tier in sorted({strip.tier for strip in table.strips} - {"hbm"}):
            hint = "make a plan for these ranks; host memory beside the device's own is a GPU's"
            raise InputError(f"table {name} lies in {tier}, and {device.type} has hbm only", hint=hint)
