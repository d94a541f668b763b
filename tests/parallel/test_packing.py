"""Messages: joined, separated, and added up where they belong."""

from types import SimpleNamespace
from typing import cast

import pytest
import torch

from dlrmx.parallel.hops import Hop
from dlrmx.parallel.packing import Packing

BAGS = torch.tensor([[2, 1, 0], [1, 2, 3]])  # 2 members, 3 slots


def packing(*ranges: tuple[int, int]) -> Packing:
    return Packing(cast(Hop, SimpleNamespace(ranges=ranges, members=(0, 1))))


@pytest.mark.parametrize("ranges", [((0, 3),), ((0, 1), (1, 3))])
def test_separate_undoes_join(ranges: tuple[tuple[int, int], ...]) -> None:
    pack, widths = packing(*ranges), [4, 8][: len(ranges)]
    rows = [int(BAGS[:, first:last].sum()) for first, last in ranges]
    tables = [torch.randn(count, width) for count, width in zip(rows, widths, strict=True)]
    message = pack.join(tables, BAGS, torch.float32)
    assert message.numel() == sum(pack.sizes(BAGS, widths))
    for table, found in zip(tables, pack.separate(message, BAGS, widths), strict=True):
        assert torch.equal(table, found)


CASES = {
    "in order": list(range(9)),
    "each once": [3, 1, 0, 2, 8, 7, 6, 5, 4],
    "one twice, one not at all": [3, 1, 0, 2, 8, 7, 6, 5, 5],
    "some not at all": [3, 1, 0, 2, 11, 7, 6, 5, 4],
}


@pytest.mark.parametrize("case", CASES)
def test_vectors_are_added_where_gradients_are_taken(case: str) -> None:
    pack, positions, vectors = packing((0, 3)), torch.tensor(CASES[case]), torch.randn(9, 4)
    leaf_rows = max(9, max(CASES[case]) + 1)
    (leaf,) = pack.add_up([vectors], positions, BAGS, (leaf_rows,))
    wanted = torch.zeros(leaf_rows, 4)
    for vector, position in zip(vectors, CASES[case], strict=True):
        wanted[position] += vector
    assert torch.equal(leaf, wanted)
    (taken,) = pack.take([leaf], positions, BAGS, (leaf_rows,))
    assert torch.equal(taken, wanted[positions])
    same = leaf.data_ptr() == vectors.data_ptr() and taken.data_ptr() == leaf.data_ptr()
    assert same == (case == "in order")  # nothing is copied then
