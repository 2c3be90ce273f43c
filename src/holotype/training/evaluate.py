"""Evaluate the images of a run's table: features and predictions of the current model."""

from __future__ import annotations

import torch
from torch import Tensor

from holotype.data.bursts import first_frames
from holotype.data.samplers import keyed_generator
from holotype.methods.base import Images, Method, Prediction
from holotype.training.batches import RowIndex
from holotype.training.encoder import to_device_images
from holotype.training.views import Key, ViewSource, evaluation_features, table_features
from holotype.utils.device import Device


class TableEvaluator:
    """The N images of a table, of which `rows.usable` can be read."""

    def __init__(self, rows: RowIndex, compute: Device) -> None:
        self.rows = rows
        self.row = rows.usable.to(compute.device)
        self.label = rows.target.to(compute.device)[self.row]

    def features(self, source: ViewSource) -> Tensor:
        """(N, D) with the weights as they are, zeros for images that cannot be read."""
        return table_features(source, self.rows.usable, len(self.rows.target))

    def images(self, source: ViewSource, key: Key) -> Images:
        """For the start of an epoch; the features are computed when they are asked for. key: of the generator."""

        def encode() -> Tensor:
            return evaluation_features(source, self.rows.usable)

        return Images(self.row, self.label, len(self.rows.target), keyed_generator(*key), encode)

    @torch.no_grad()
    def finish(self, method: Method, features: Tensor, key: Key) -> Prediction:
        """The end of a training: the method's last work, and where it places every image. features: (N, D).

        What it clusters holds one frame of each burst.
        """
        n_rows, row = len(self.rows.target), self.row
        if self.rows.unit is not None:
            row = torch.from_numpy(first_frames(self.rows.unit, self.rows.usable.numpy())).to(row.device)
        label = self.rows.target.to(row.device)[row]
        method.finish(Images(row, label, n_rows, keyed_generator(*key), lambda: features[row]))
        return to_device_images(method, features, self.rows.usable)

    @torch.no_grad()
    def predict(self, method: Method, source: ViewSource) -> Prediction:
        """Where a method places every image with the weights as they are."""
        return to_device_images(method, self.features(source), self.rows.usable)
