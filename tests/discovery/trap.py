"""A folder of camera trap pictures with MegaDetector's file: coloured animals in grey surroundings."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.conftest import COLOURS, KNOWN
from tests.data.cameras import photograph

HEIGHT, WIDTH = 60, 100
ANIMAL = (24, 20)
"""Width and height in pixels."""


def trap_pictures(root: Path, each: int = 10) -> Path:
    """`each` pictures of every colour, each with one animal, the first of each colour with two; half of those of known
    colours lie in folders of that name. MegaDetector's file is root/detections.json: a picture without an animal, one
    with a person, one animal of which it is not sure."""
    random, images = np.random.default_rng(0), []
    for kind, (name, colour) in enumerate(COLOURS.items()):
        for number in range(each):
            folder = name if name in KNOWN and number < each // 2 else "unlabelled"
            path = f"{folder}/{name}-{number:02d}.jpg"
            pixels = random.integers(100, 130, (HEIGHT, WIDTH, 3)).astype(np.uint8)
            places = [(int(random.integers(2, 24)), int(random.integers(2, 36)))]
            places += [(60, int(random.integers(2, 36)))] if number == 0 else []
            for x, y in places:
                noise = random.integers(-25, 25, (ANIMAL[1], ANIMAL[0], 3))
                pixels[y : y + ANIMAL[1], x : x + ANIMAL[0]] = np.clip(np.array(colour) + noise, 0, 255)
            photograph(root / path, pixels, taken=f"2024:05:{number + 1:02d} {kind:02d}:00:00", model="HP2X")
            images.append({"file": path, "detections": [_found(x, y) for x, y in places]})
    photograph(root / "unlabelled" / "empty.jpg", np.full((HEIGHT, WIDTH, 3), 120, dtype=np.uint8))
    person = {"category": "2", "conf": 0.9, "bbox": [0, 0, 0.3, 1]}
    images.append({"file": "unlabelled/empty.jpg", "detections": [person, _found(5, 5) | {"conf": 0.1}]})
    content = {"detection_categories": {"1": "animal", "2": "person", "3": "vehicle"}, "images": images}
    (root / "detections.json").write_text(json.dumps(content))
    return root


def _found(x: int, y: int) -> dict[str, Any]:
    box = [x / WIDTH, y / HEIGHT, ANIMAL[0] / WIDTH, ANIMAL[1] / HEIGHT]
    return {"category": "1", "conf": 0.9, "bbox": [round(value, 4) for value in box]}
