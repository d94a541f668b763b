"""Kubernetes objects as YAML that every YAML reader reads alike: kubectl's follows 1.1 and 1.2 in parts."""

import re
from collections.abc import Sequence
from typing import Any

import yaml

# Text that is nothing else in any YAML: begins with a letter or a slash, and is no word for a truth value or nothing.
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9/._-]*")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _represent_text)


def manifest_yaml(objects: Sequence[dict[str, Any]], title: str) -> str:
    """One document per object, under a comment; ASCII."""
    documents = (yaml.dump(one, Dumper=_Dumper, sort_keys=False, width=10**9) for one in objects)
    return f"# {title}\n" + "---\n".join(documents)
