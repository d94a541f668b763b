"""dlrmx doctor on a cluster: each node says how it is, and whether it reaches the first one."""

import json
from pathlib import Path

from slurm_lab import Lab, lab_cli


def test_each_node_is_examined_by_a_job(lab: Lab, tmp_path: Path) -> None:
    cli = lab_cli(lab, tmp_path)
    done = cli.execute("doctor", "--cluster", "lab", "--json")
    asked, *nodes = json.loads(done.stdout)["examined"]
    assert [finding["verdict"] for finding in asked["findings"]] == ["ok", "ok"], asked
    assert [one["node"] for one in nodes] == list(range(4))
    assert len({one["host"] for one in nodes}) == 4
    for one in nodes:
        found = {finding["what"]: finding for finding in one["findings"]}
        assert found["nodes"]["verdict"] == "ok", found
        assert found["fbgemm operators"]["said"].startswith("cpu: a look-up and an update give the right numbers")
    assert "all 4 have come" in {finding["what"]: finding for finding in nodes[0]["findings"]}["nodes"]["said"]
    assert list((tmp_path / "runs").glob("doctor-*")) == []
