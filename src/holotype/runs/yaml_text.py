"""YAML whose values stay text, for files of settings: the type of a setting says what its text means.

So `cache_views: off` is text, `lr: 1e-4` a number and `out: 2024` a folder, none of which YAML 1.1 has as people
mean it. Only null (or nothing) is None. A key that stands twice is a mistake.
"""

from __future__ import annotations

from typing import Any

import yaml

KEPT = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {  # noqa: RUF012  a copy, since PyYAML's own is everybody's
        first: [(tag, pattern) for tag, pattern in found if tag in KEPT]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Looked at before merge keys are resolved, after which a key may well come up twice."""
        node = super().compose_mapping_node(anchor)
        names = [
            key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.tag != KEPT[1]
        ]
        for name in names:
            if names.count(name) > 1:
                raise yaml.MarkedYAMLError(problem=f"{name} stands twice", problem_mark=node.start_mark)
        return node


def parse_yaml(text: str) -> Any:
    """Dictionaries, lists, text and None; raises ValueError with one line where it is not YAML."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: `!!int many`
        raise ValueError(" ".join(str(error).split())) from error


def write_yaml(content: dict[str, Any]) -> str:
    """What `parse_yaml` reads back."""
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
