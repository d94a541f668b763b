"""Multi-hot features made of one-hot ones ("uniform-v1"), as MLPerf makes its DLRM-DCNv2 data of Criteo's.

The id i of a table becomes n ids: i itself, and for k = 1 to n - 1 the id mix64(i + k * 0x9E3779B97F4A7C15) % rows. So
equal ids have equal bags, and nothing but the ids is stored. (MLPerf draws the others from a random generator, once per
id: also evenly over the table, but other ones.)
"""

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.hashing import GOLDEN, MASK64, mix64

Int64s = NDArray[np.int64]


def expanded(ids: NDArray[np.integer], size: int, rows: int) -> Int64s:
    """The `size` ids of each of B ids of a table of `rows` rows, bag after bag: (B * size,)."""
    steps = np.array([k * GOLDEN & MASK64 for k in range(size)], dtype=np.uint64)
    drawn = mix64(ids.astype(np.uint64)[:, None] + steps) % np.uint64(rows)
    bags = drawn.astype(np.int64)
    bags[:, 0] = ids
    return bags.ravel()
