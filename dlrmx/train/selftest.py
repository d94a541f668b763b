"""Whether torch and fbgemm work here: `python -m dlrmx.train.selftest` trains a table by a hand-computed step, and says
so as one JSON line.

In a process of its own: packages that do not pair crash it, or do so at the first operator and not at the import.
"""

import json
import sys
import tempfile
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

# A table of four rows, row r being (r, r): bag 0 = rows 1 and 2, bag 1 = row 3, bag 2 = rows 3 and 1.
IDS, OFFSETS = [1, 2, 3, 3, 1], [0, 2, 3, 5]
WIDTH, RATE = 4, 0.5
POOLED = [3.0, 3.0, 4.0]
# The gradient of each bag's sum is 1, 2, 4: row 1 has 1 + 4, row 2 has 1, row 3 has 2 + 4; SGD takes half of it.
GRADIENTS = [1.0, 2.0, 4.0]
AFTER = [0.0, 1 - 2.5, 2 - 0.5, 3 - 3.0]


def main() -> int:
    """Print {"torch", "devices": {name: "" or what is wrong}, "gloo", "nccl"}."""
    print(json.dumps({"torch": torch.__version__, "devices": devices(), **backends()}))
    return 0


def devices() -> dict[str, str]:
    """What is wrong with the kernels of each device; "" where nothing is."""
    found = {"cpu": _fault(torch.device("cpu"))}
    for index in range(torch.cuda.device_count()):
        found[f"cuda:{index} {torch.cuda.get_device_name(index)}"] = _fault(torch.device("cuda", index))
    return found


def backends() -> dict[str, Any]:
    """nccl: its version, or None; gloo: what is wrong with a group of one, "" where nothing is."""
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if dist.is_nccl_available() else None
    total = torch.ones(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            meeting = f"file://{folder}/meeting"
            dist.init_process_group("gloo", init_method=meeting, rank=0, world_size=1, timeout=timedelta(seconds=30))
            dist.all_reduce(total)
            dist.destroy_process_group()
    except RuntimeError as error:
        return {"nccl": nccl, "gloo": str(error)}
    return {"nccl": nccl, "gloo": "" if total.item() == 1 else f"a sum of one 1 is {total.item()}"}


def _fault(device: torch.device) -> str:
    from dlrmx.parallel.fused import FusedTable
    from dlrmx.recipe.schema import SparseOptimizer

    try:
        table = FusedTable(len(AFTER), WIDTH, "fp32", SparseOptimizer(kind="sgd", lr=RATE), device)
        table.weight.copy_(torch.arange(len(AFTER), device=device).unsqueeze(1))
        ids, offsets = (torch.tensor(numbers, dtype=torch.int32, device=device) for numbers in (IDS, OFFSETS))
        pooled = table.look_up(ids, offsets, None)
        pooled.backward(torch.tensor(GRADIENTS, device=device).unsqueeze(1).expand(-1, WIDTH).contiguous())
        found, after = pooled.detach().cpu(), table.weight.detach().cpu()
    except (RuntimeError, AttributeError, ImportError, NotImplementedError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    for what, numbers, wanted in (("look-up", found, POOLED), ("update", after, AFTER)):
        if not torch.equal(numbers, torch.tensor(wanted).unsqueeze(1).expand(-1, WIDTH)):
            return f"its {what} gives {numbers[:, 0].tolist()}, and {wanted} is right"
    return ""


if __name__ == "__main__":
    sys.exit(main())
