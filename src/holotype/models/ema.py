"""EMA teacher: a copy of modules that follows them as a moving average."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class Teacher(nn.Module):
    """theta_teacher <- m theta_teacher + (1 - m) theta_student, for all parameters of the given modules.

    Its weights are buffers: they are saved with the method that owns it, and no optimiser sees them. It is always in
    evaluation mode. `teacher[0]` is the copy of the first module, `teacher(x)` calls it; both give no gradient to the
    teacher's weights. A teacher of the tail takes the inputs of every stage, as the tail does. Features of a teacher
    belong into the output of `Method.encode`, as one more of its P.
    """

    def __init__(self, *students: nn.Module) -> None:
        super().__init__()
        self.copies = nn.ModuleList(_without_parameters(copy.deepcopy(student)) for student in students)
        self.copies.eval()
        vars(self)["students"] = students  # past nn.Module: they are somebody else's

    def __getitem__(self, index: int) -> nn.Module:
        return self.copies[index]

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.copies[0](x)
        return features

    def train(self, mode: bool = True) -> Teacher:
        """Stays in evaluation mode."""
        return super().train(False)

    @torch.no_grad()
    def update(self, m: Tensor | float) -> None:
        """Follow the students by one step; m = 0 copies them, m = 1 changes nothing. m: a number or a 0-d tensor."""
        for mine, student in zip(self.copies, vars(self)["students"], strict=True):
            own = dict(mine.named_buffers())
            for name, parameter in student.named_parameters():
                own[name].lerp_(parameter, 1 - m)
            for name, buffer in student.named_buffers():  # counts and the like have no average
                own[name].copy_(buffer)


def _without_parameters(module: nn.Module) -> nn.Module:
    """The same module with buffers in place of its parameters."""
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            delattr(part, name)
            part.register_buffer(name, parameter.detach().clone())
    return module
