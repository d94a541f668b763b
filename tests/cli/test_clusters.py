"""clusters list and show."""

import json
from pathlib import Path

from scripted import Dlrmx


def test_profiles_are_found_from_this_folder(dlrmx: Dlrmx, tmp_path: Path) -> None:
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "big.yaml").write_text("scheduler: local\nworkers_per_node: 6\n")
    found = json.loads(dlrmx("clusters", "list", "--json").stdout)["clusters"]
    sources = {entry["name"]: entry["source"] for entry in found}
    assert (sources["big"], sources["local"]) == ("clusters/big.yaml", "built in")
    assert {"zionex", "dgx_a100_80", "dgx_h100", "hgx_h200"} <= set(sources)
    shown = json.loads(dlrmx("clusters", "show", "big", "--json").stdout)
    assert shown["profile"]["workers_per_node"] == 6
    assert ["workers_per_node", "6"] in [line.split() for line in dlrmx("clusters", "show", "big").stdout.splitlines()]


def test_local_is_the_default(dlrmx: Dlrmx, tmp_path: Path) -> None:
    shown = json.loads(dlrmx("clusters", "show", "--json").stdout)
    assert (shown["name"], shown["profile"]["root"]) == ("local", str(tmp_path / "runs"))


def test_what_plans_count_on_is_shown(dlrmx: Dlrmx) -> None:
    """Also of a kind of node, which gives no number itself."""
    lines = [line.split() for line in dlrmx("clusters", "show", "zionex").stdout.splitlines()]
    assert ["node.kind", "zionex"] in lines
    assert ["node.hbm_gb", "40"] in lines
    assert all(len(line) == 2 for line in lines if line[0].startswith("node."))
    assert json.loads(dlrmx("clusters", "show", "zionex", "--json").stdout)["counted_on"]["ddr_gb"] == 1500
