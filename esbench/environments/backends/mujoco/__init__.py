"""The exact fast path for Gymnasium's MuJoCo environments, v5: one file per kind of robot."""

from esbench.environments.backends.mujoco.backend import MujocoBackend

__all__ = ["MujocoBackend"]
