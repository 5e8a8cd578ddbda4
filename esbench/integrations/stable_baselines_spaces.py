"""Where ``esbench tune`` searches the settings of the algorithms of Stable-Baselines3.

The ranges are about those of rl-zoo3 (Raffin 2020, "RL Baselines3 Zoo"). It draws 1 - gamma and
powers of two; here they are lists of choices, so that a table shows the values themselves.
"""

from __future__ import annotations

from typing import Final

from esbench.core.search_space import Tune

_GAMMA: Final = Tune(choices=(0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999))
_GAE_LAMBDA: Final = Tune(choices=(0.8, 0.9, 0.92, 0.95, 0.98, 0.99, 1.0))
_LEARNING_RATE: Final = Tune(low=1e-5, high=2e-3, log=True)
_ENT_COEF: Final = Tune(low=1e-8, high=0.1, log=True)
_MAX_GRAD_NORM: Final = Tune(low=0.3, high=2.0)
_ROLLOUT: Final = Tune(choices=(32, 64, 128, 256, 512, 1024, 2048))
_BATCH: Final = Tune(choices=(16, 32, 64, 128, 256, 512, 1024))
_ACTIVATION: Final = Tune("activation_fn", choices=("Tanh", "ReLU"))
_ON_POLICY: Final[dict[str, tuple[Tune, ...]]] = {
    "n_steps": (_ROLLOUT,),
    "gamma": (_GAMMA,),
    "gae_lambda": (_GAE_LAMBDA,),
    "learning_rate": (_LEARNING_RATE,),
    "policy_kwargs": (Tune("net_arch", choices=([64], [64, 64], [256, 256])), _ACTIVATION),
}
_OFF_POLICY: Final[dict[str, tuple[Tune, ...]]] = {
    "gamma": (_GAMMA,),
    "learning_rate": (_LEARNING_RATE,),
    "batch_size": (_BATCH,),
    "train_freq": (Tune(choices=(1, 2, 4, 8)),),
    "gradient_steps": (Tune(choices=(1, -1)),),  # -1: as many as steps since the last update
    "policy_kwargs": (Tune("net_arch", choices=([64, 64], [256, 256], [400, 300])),),
}
_ACTOR_CRITIC: Final = {**_OFF_POLICY, "tau": (Tune(low=1e-3, high=0.08, log=True),)}

SPACES: Final[dict[str, dict[str, tuple[Tune, ...]]]] = {
    "PPO": {
        **_ON_POLICY,
        "batch_size": (_BATCH,),
        "n_epochs": (Tune(choices=(1, 5, 10, 20)),),
        "clip_range": (Tune(choices=(0.1, 0.2, 0.3, 0.4)),),
        "ent_coef": (_ENT_COEF,),
        "max_grad_norm": (_MAX_GRAD_NORM,),
    },
    "A2C": {
        **_ON_POLICY,
        "n_steps": (Tune(choices=(5, 8, 16, 32, 64, 128, 256)),),
        "ent_coef": (_ENT_COEF,),
        "max_grad_norm": (_MAX_GRAD_NORM,),
    },
    "TRPO": {
        **_ON_POLICY,
        "batch_size": (_BATCH,),
        "n_critic_updates": (Tune(low=5, high=30),),
        "cg_max_steps": (Tune(low=5, high=30),),
        "target_kl": (Tune(low=1e-3, high=0.1, log=True),),
    },
    "DQN": {
        **_OFF_POLICY,
        "exploration_fraction": (Tune(low=0.05, high=0.5),),
        "exploration_final_eps": (Tune(low=0.0, high=0.2),),
        "target_update_interval": (Tune(low=1, high=20_000, log=True),),
    },
    "SAC": _ACTOR_CRITIC,
    "TD3": {**_ACTOR_CRITIC, "action_noise_std": (Tune(low=0.0, high=0.5),)},
    "ARS": {
        "n_delta": (Tune(choices=(2, 4, 8, 16, 32, 64)),),
        "learning_rate": (Tune(low=1e-3, high=0.1, log=True),),
        "delta_std": (Tune(low=5e-3, high=0.2, log=True),),
        "zero_policy": (Tune(choices=(True, False)),),
    },
}
"""The searched settings of each class of the library; a table has one annotation for each key."""
