"""Count the files of ours that a command walks through, and time it to its first step: `python tools/count_files.py`.

A small `holotype train rpc` and `holotype discover` run on drawn images with the embedded network, each twice in a
process of its own: once traced, for the files in which a function ran (in any thread; what runs while modules are
imported does not count), and once untraced, for the time. Processes that a command starts are not looked into.
`--list` names the files, `--json` prints the figures for a machine.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

SOURCE = Path(__file__).resolve().parent.parent / "src"
OURS = str(SOURCE / "holotype") + os.sep
COMMON = ("--device", "cpu", "--no-progress")
COMMANDS = {
    "train": "train rpc {data}/squares.csv --k 4 --train.epochs 1 --train.batch_size 16 --backbone.name embedded",
    "discover": "discover {data}/images --k 4 --steps 6 --seeds 1 --backbone embedded",
}


def draw_images(data: Path) -> None:
    """48 squares of four colours, half of those of two colours labelled."""
    import numpy as np
    from PIL import Image

    noise, lines = np.random.default_rng(0), ["path,label,truth"]
    for number, colour in enumerate([(200, 40, 40), (40, 180, 60), (40, 60, 200), (220, 200, 40)]):
        for i in range(12):
            label = f"class{number}" if number < 2 and i < 6 else ""
            file = data / "images" / (label or "unlabelled") / f"{number}-{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.array(colour) + noise.integers(-30, 30, (150, 150, 3))
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file)
            lines.append(f"{file.relative_to(data)},{label},class{number}")
    (data / "squares.csv").write_text("\n".join(lines) + "\n")


def importing(frame: FrameType | None) -> bool:
    """Whether a module of ours is being imported further up the stack."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(OURS):
            return True
        frame = frame.f_back
    return False


def child(how: str, words: list[str], begun: float, answer: Path) -> int:
    """Run a command in this process, and write the files that it walked, or the seconds to its first step."""
    walked: dict[str, int] = {}
    seconds: list[float] = []

    def trace(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_filename in walked or not code.co_filename.startswith(OURS):
            return
        if code.co_flags & inspect.CO_OPTIMIZED and not importing(frame):  # a function, no class or module
            walked[code.co_filename] = 1

    from holotype.cli import main

    if how == "trace":
        threading.setprofile(trace)
        sys.setprofile(trace)
    else:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(lambda *_: seconds.append(time.time() - begun))
    code = main(words)
    sys.setprofile(None)
    files = sorted(os.path.relpath(name, OURS) for name in walked)
    answer.write_text(json.dumps({"files": files, "seconds": seconds[:1]}))
    return code


def measure(command: str, how: str, folder: Path) -> dict[str, Any]:
    out, answer = folder / f"{command}-{how}", folder / f"{command}-{how}.json"
    words = [*COMMANDS[command].format(data=folder).split(), *COMMON, "--out", str(out)]
    paths = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    env = os.environ | {"XDG_CACHE_HOME": str(folder / f"cache-{command}-{how}"), "PYTHONPATH": paths}
    call = [sys.executable, __file__, "--child", how, str(time.time()), str(answer), *words]
    subprocess.run(call, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=folder)
    return dict(json.loads(answer.read_text()))


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        how, begun, answer, *words = sys.argv[2:]
        return child(how, words, float(begun), Path(answer))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list", action="store_true", help="name the files")
    parser.add_argument("--json", action="store_true", help="figures for a machine")
    args, found = parser.parse_args(), {}
    with tempfile.TemporaryDirectory() as name:
        draw_images(Path(name))
        for command in COMMANDS:
            files = measure(command, "trace", Path(name))["files"]
            seconds = measure(command, "time", Path(name))["seconds"][0]
            found[command] = {"files": files if args.list else len(files), "seconds": round(seconds, 1)}
            if not args.json:
                print(f"{command}: {len(files)} files, {seconds:.1f} s to the first step")
                print("".join(f"  {file}\n" for file in files) if args.list else "", end="")
    if args.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
