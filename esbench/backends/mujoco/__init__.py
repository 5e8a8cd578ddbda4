"""The exact fast path for Gymnasium's MuJoCo environments, v5: one file for each kind of task."""

from esbench.backends.mujoco.backend import MujocoBackend

__all__ = ["MujocoBackend"]
