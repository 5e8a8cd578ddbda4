"""A network for any environment with vectors."""

import torch


class Network(torch.nn.Module):
    """One hidden layer, and a shortcut past it."""

    def __init__(self, num_inputs, num_outputs, width=16):
        super().__init__()
        self.hidden = torch.nn.Linear(num_inputs, width)
        self.output = torch.nn.Linear(width, num_outputs)
        self.shortcut = torch.nn.Linear(num_inputs, num_outputs, bias=False)

    def forward(self, observations):
        """Map observations [1, num_inputs] to outputs [1, num_outputs]."""
        hidden = torch.relu(self.hidden(observations))
        return self.output(hidden) + self.shortcut(observations)
