"""Optimizers that climb a gradient estimate: ClipUp, Adam, SGD, and the others of ``torch.optim``.

Adam and SGD could be torch's, and were. They are ours for two reasons:

- ``import torch`` takes about as long as all the rest of a trial's start: the first generation of
  ``esbench run quick`` was recorded after 6.5 to 7.1 s with it, and after 3.9 to 5.8 s without
  (three and five starts on one day).
- Torch's vectorised loops round once where a product enters a sum, if the processor can, so that
  their bits depend on it. Ours are IEEE operations one by one, the same everywhere but for the
  powers of Adam's betas.
"""
