"""Optimizers that follow a gradient estimate: ClipUp, Adam, SGD and the others of ``torch.optim``.

Adam and SGD are implemented here, not taken from torch, for two reasons:

- A trial that does not use torch starts faster, because ``import torch`` is slow.
- Torch's vectorised loops use fused multiply-add where the processor has it, so their bits depend
  on the processor. The operations here round one by one and give the same bits everywhere, except
  for the powers of Adam's betas.
"""
