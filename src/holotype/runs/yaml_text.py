"""YAML as people mean it, which YAML 1.1 often does not have: a key that stands twice is a mistake, `off` is text.

In files of settings every value stays text, since the type of a setting says what its text means: `lr: 1e-4` is a
number and `out: 2024` a folder. In studies numbers, true and false are values. In both null (or nothing) is None.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

NULL, MERGE = "tag:yaml.org,2002:null", "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """The values stay text."""

    yaml_implicit_resolvers = {  # noqa: RUF012  a copy, since PyYAML's own is everybody's
        first: [(tag, pattern) for tag, pattern in found if tag in (NULL, MERGE)]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Looked at before merge keys are resolved, after which a key may well come up twice."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != MERGE:
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"{key.value} stands twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return node


class _ValueLoader(_Loader):
    """Numbers, dates, true and false are values, and 1e-4 is one of the numbers. 0100 and 1:30 are none: YAML 1.1 has
    them count by eights and sixties."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in found if not tag.endswith((":bool", ":float", ":int"))]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_NUMBER = re.compile(
    r"[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?$|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"
)
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9_]*)$")
_TRUTH = re.compile(r"(true|True|TRUE|false|False|FALSE)$")
_ValueLoader.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+.0123456789"))
_ValueLoader.add_implicit_resolver("tag:yaml.org,2002:int", _WHOLE, list("-+0123456789"))
_ValueLoader.add_implicit_resolver("tag:yaml.org,2002:bool", _TRUTH, list("tTfF"))


def parse_yaml(text: str) -> Any:
    """Dictionaries, lists, text and None; raises ValueError with one line where it is not YAML."""
    return _parse(text, _Loader)


def parse_values(text: str) -> Any:
    """The same, where numbers, dates, true and false are no text."""
    return _parse(text, _ValueLoader)


def _parse(text: str, loader: type[_Loader]) -> Any:
    try:
        return yaml.load(text, loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: `!!int many`
        raise ValueError(" ".join(str(error).split())) from error


def write_yaml(content: dict[str, Any]) -> str:
    """What `parse_yaml` reads back."""
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
