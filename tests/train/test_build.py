"""What a device cannot hold is refused before anything is built."""

from dataclasses import replace
from typing import cast

import pytest
import torch

from dlrmx.errors import InputError
from dlrmx.parallel.wire import Wire
from dlrmx.plan.shards import Tier
from dlrmx.train.build import build_parts
from sharding_cases import make_plan, make_recipe


@pytest.mark.parametrize("tier", ["uvm", "uvm_caching"])
def test_a_tier_that_a_processor_lacks_is_refused_by_table_tier_and_device(tier: Tier) -> None:
    plan = make_plan("table_wise", 1)
    small = plan.tables["small"]
    lower = replace(small, strips=tuple(replace(strip, tier=tier, cache_ratio=0.2) for strip in small.strips))
    plan = replace(plan, tables={**plan.tables, "small": lower})
    no_wire = cast(Wire, None)  # it is not reached
    with pytest.raises(InputError, match=f"table small lies in {tier}, and cpu has hbm only"):
        build_parts(make_recipe(), plan, wire=no_wire, dense_dim=5, device=torch.device("cpu"))
