"""`holotype export`: the model of a discovery as an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holotype.cli.words import Parser, speaks


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    from holotype.placing.export import export_onnx

    parity = export_onnx(Path(given.run), Path(given.file))
    if speaks():
        print(
            f"{given.file}: images (batch, 3, S, S) in; features and logits out. The metadata name the categories.\n"
            f"Largest difference from torch on random images: features {parity.features:.1e}, "
            f"logits {parity.logits:.1e} (largest value {parity.size:.1f})."
        )
    return 0


def make_parser() -> Parser:
    parser = Parser(
        prog="holotype export",
        description="Write the trained model of a discovery as ONNX and compare it with torch. Needs the extra onnx: "
        "pip install 'holotype[onnx]'.",
    )
    parser.add_argument("run", metavar="RUN", help="run folder of a holotype discover")
    parser.add_argument("file", metavar="FILE", help="where the model goes, for example model.onnx")
    return parser
