"""container/Dockerfile, by reading: it is built where there is docker."""

import configparser
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "container" / "Dockerfile").read_text()
IGNORE = (ROOT / "container" / "Dockerfile.dockerignore").read_text().split()


def copied() -> set[str]:
    """What is taken from the checkout."""
    lines = [match[1].split()[:-1] for match in re.finditer(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)]
    return {name for line in lines for name in line}


def test_what_is_copied_is_there_and_sent_to_docker() -> None:
    assert all((ROOT / name).exists() for name in copied())
    assert {name.removeprefix("!") for name in IGNORE if name.startswith("!")} == copied()


def test_all_that_the_package_is_made_of_is_copied() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    folders = {line.partition(" = ")[2] for line in setup["options"]["package_dir"].split("\n") if line}
    assert folders | {"dlrmx", "LICENSE", "README.md", "constraints.txt"} <= copied()
    assert {"cpu", "cuda"} <= set(setup["options.extras_require"])


def test_an_init_runs_it_and_root_does_not() -> None:
    last = DOCKERFILE.rpartition("FROM ")[2]
    assert "USER 1000\n" in last
    assert 'ENTRYPOINT ["tini", "--"]' in last
    for package in ("tini", "libibverbs1", "ibverbs-providers"):
        assert package in last
