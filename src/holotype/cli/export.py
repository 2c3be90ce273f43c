"""`holotype export`: the model of a run as an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holotype.cli.common import CodeOptions, File, Parser, RunDir, echo, is_rank0_output


@dataclass(kw_only=True)
class ExportOptions(CodeOptions):
    """Write the trained model of a run as ONNX and compare it with torch. Needs the extra onnx:
    pip install 'holotype[onnx]'."""

    run: RunDir
    """Folder of a finished run."""
    file: File
    """Where the model goes, for example model.onnx."""
    overwrite: bool = False
    """Replace FILE if it exists."""


def make_parser() -> Parser:
    return Parser("export", ExportOptions)


def command(argv: Sequence[str]) -> int:
    options: ExportOptions = make_parser().parse_args(argv)
    from holotype.export.onnx import export_onnx

    parity = export_onnx(options.run, options.file, overwrite=options.overwrite)
    if is_rank0_output():
        echo(
            f"{options.file}: images (batch, 3, S, S) in; features and logits out. The metadata name the categories.\n"
            f"Largest difference from the trained model on random images: features {parity.features:.1e} (largest "
            f"value {parity.size:.1f}), probability of the category {parity.probability:.1e}."
        )
    return 0
