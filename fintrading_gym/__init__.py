"""FinMemTrading-v0: one decision a day on one stock, for language models and learned policies alike.

`import fintrading_gym` registers the environment with Gymnasium and loads nothing else;
`gym.make("fintrading_gym:FinMemTrading-v0")` does both.
"""

import gymnasium as gym

__version__ = "0.1.0"
ENV_ID = "FinMemTrading-v0"

# The environment counts its own steps and refuses a step before reset, so two wrappers are not needed.
if ENV_ID not in gym.registry:
    gym.register(
        ENV_ID,
        entry_point="fintrading_gym.env:FinMemTradingEnv",
        vector_entry_point="fintrading_gym.vector_env:FinMemTradingVectorEnv",
        order_enforce=False,
    )
