"""Vocabularies beside prepared data, so that other rows get the ids that the model was trained with."""

import os
import shutil
from pathlib import Path

from dlrmx.data.manifest import FileFacts, Manifest, file_sum, read_manifest, verify_files
from dlrmx.errors import InputError

PREFIX = "vocabulary-"


def keep_vocabularies(made: Path, dataset: Path) -> dict[str, FileFacts]:
    """Copy the files of a preparation's vocabularies, if it made any, into its dataset; their facts by name."""
    facts = {}
    for path in sorted(made.glob("*")):
        kept = dataset / f"{PREFIX}{path.name}"
        shutil.copyfile(path, kept)
        with kept.open("rb") as file:
            os.fsync(file.fileno())
        facts[kept.name] = FileFacts(kept.stat().st_size, file_sum(kept))
    return facts


def verify_vocabularies(folder: Path, manifest: Manifest) -> list[str]:
    """The names of a dataset's vocabulary files, each held against its sum. Raises InputError with all that differ."""
    names = [name for name in manifest.files if name.startswith(PREFIX)]
    verify_files(folder, manifest, names)
    return names


def take_vocabularies(trained_on: Path, target: Path) -> None:
    """Copy the vocabularies of a prepared dataset into a new folder. InputError where it is damaged or has none."""
    names = verify_vocabularies(trained_on, read_manifest(trained_on))
    if not names:
        raise InputError(f"{trained_on}: has no vocabularies", hint=f"Remove {trained_on} and prepare again.")
    target.mkdir()
    for name in names:
        shutil.copyfile(trained_on / name, target / name.removeprefix(PREFIX))
