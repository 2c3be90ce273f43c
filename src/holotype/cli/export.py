"""What a run is taken out as: `holotype write` in the forms of export/registry.py, `holotype export` as ONNX."""

from __future__ import annotations

from dataclasses import fields

from holotype.cli.common import echo
from holotype.cli.options import ExportOptions, ResultOptions
from holotype.errors import InputError
from holotype.export.registry import EXPORTERS, ExporterOptions
from holotype.utils.text import join_or


def write_command(options: ResultOptions) -> None:
    chosen = [one for one in EXPORTERS if getattr(options, one.name) is not None]
    if not chosen:
        raise InputError(f"holotype write needs {join_or(_flag(one.name) for one in EXPORTERS)}.")
    for name in (option.name for option in fields(ExporterOptions)):
        if getattr(options, name) and not any(name in exporter.options for exporter in chosen):
            fitting = join_or(_flag(one.name) for one in EXPORTERS if name in one.options)
            raise InputError(
                f"{_flag(name)} says nothing about {_flag(chosen[0].name)}; it goes with {fitting}."
            )
    for exporter in chosen:
        out, how = (
            getattr(options, exporter.name),
            {name: getattr(options, name) for name in exporter.options},
        )
        how |= {"overwrite": options.overwrite, "progress": options.progress}
        echo(exporter.write(options.run, out, **how).summary(out))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def export_command(options: ExportOptions) -> None:
    from holotype.export.onnx import export_onnx  # brings torch

    parity = export_onnx(options.run, options.file, overwrite=options.overwrite)
    echo(
        f"{options.file}: images (batch, 3, S, S) in; features and logits out. The metadata name the categories.\n"
        f"Largest difference from the trained model on random images: features {parity.features:.1e} (largest "
        f"value {parity.size:.1f}), probability of the category {parity.probability:.1e}."
    )
