"""plan --nodes: several sizes."""

from pathlib import Path

import pytest

from scripted import Dlrmx, plan_json


def test_several_sizes_give_a_table_with_ways_out(dlrmx: Dlrmx, many: Path) -> None:
    # The host's memory is left out, so that a terabyte of fp32 needs some 26 GPUs.
    here = ("--cluster", "zionex", "-s", "cluster.memory_gib=0.001")
    found = plan_json(dlrmx, many, *here, "--nodes", "1,8,16")
    assert [(row["nodes"], row["ranks"], row["fits"]) for row in found["sizes"]] == [
        (1, 8, False),
        (8, 64, True),
        (16, 128, True),
    ]
    small, first, second = found["sizes"]
    assert small["ways_out"]
    assert first["efficiency"] == 1
    assert second["efficiency"] == pytest.approx(second["samples_per_s"] / first["samples_per_s"] / 2)
    text = dlrmx("plan", many, *here, "--nodes", "1,8,16").stdout
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[:3] for line in lines[1:4]] == [["1", "8", "no"], ["8", "64", "yes"], ["16", "128", "yes"]]
    assert any(line.startswith("1 node: ") for line in lines)
    assert any(line.startswith("    - ") for line in lines)


def test_each_size_is_told_before_it_is_planned(dlrmx: Dlrmx, many: Path) -> None:
    done = dlrmx("plan", many, "--cluster", "zionex", "--nodes", "8,16")
    assert [line for line in done.stderr.splitlines() if line.startswith("plan ")] == [
        "plan 1 of 2: nodes 8",
        "plan 2 of 2: nodes 16",
    ]
    assert done.stdout.splitlines()[0].split()[-1] == "epoch"


def test_data_of_unknown_length_have_no_column_for_an_epoch(dlrmx: Dlrmx) -> None:
    done = dlrmx("plan", "mlperf_dcnv2", "--cluster", "zionex", "--nodes", "8,16")
    assert done.stdout.splitlines()[0].split()[-1] == "efficiency"
