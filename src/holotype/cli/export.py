"""`holotype export`: the model of a run as an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holotype.cli.common import Parser, add_code_flag, add_overwrite_flag, echo, is_rank0_output


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    from holotype.export.onnx import export_onnx

    parity = export_onnx(Path(given.run), Path(given.file), overwrite=given.overwrite)
    if is_rank0_output():
        echo(
            f"{given.file}: images (batch, 3, S, S) in; features and logits out. The metadata name the categories.\n"
            f"Largest difference from the trained model on random images: features {parity.features:.1e} (largest "
            f"value {parity.size:.1f}), probability of the category {parity.probability:.1e}."
        )
    return 0


def make_parser() -> Parser:
    parser = Parser(
        prog="holotype export",
        description="Write the trained model of a run as ONNX and compare it with torch. Needs the extra onnx: "
        "pip install 'holotype[onnx]'.",
    )
    parser.add_argument("run", metavar="RUN", help="folder of a finished run")
    parser.add_argument("file", metavar="FILE", help="where the model goes, for example model.onnx")
    add_overwrite_flag(parser, "FILE if it exists")
    add_code_flag(parser)
    return parser
