"""The numbers of FinMem's memory, as its paper gives them and as its released code has them."""

from collections.abc import Mapping
from dataclasses import dataclass

VALUES = (40.0, 60.0, 80.0)


@dataclass(frozen=True)
class Layer:
    """How memories of one layer fade, and when they leave it for the layer beside it."""

    stability: float  # Q, days: recency is exp(-age / Q)
    decay: float  # alpha: what importance is multiplied by a day
    chances: tuple[float, float, float]  # of the three values that the importance of a new memory is drawn from
    values: tuple[float, float, float] = VALUES  # v
    up: float | None = None  # from this importance on it is promoted; None: never
    down: float | None = None  # below this one it is demoted; None: never


@dataclass(frozen=True)
class Constants:
    """A whole set."""

    layers: Mapping[str, Layer]  # the first three in the order in which memories are promoted
    reflections: str  # the layer that reflections go to
    top_k: int  # memories of each layer that are shown
    by_merit: bool  # True: only a memory that was cited before a profitable decision is promoted
    least_recency: float = 0.05  # a memory below one of these two is forgotten
    least_importance: float = 5.0
    reward: float = 5.0  # added to the importance of what was cited before a profitable decision

    def __hash__(self) -> int:
        return hash((tuple(self.layers.items()), self.reflections, self.top_k))


# Section III-B and IV of the article (arXiv 2311.13743). It gives no thresholds: what is "pivotal" rises, what is not
# "gradually diminishes". So a memory rises by merit, at the released code's importance, and sinks nowhere.
PAPER = Constants(
    {
        "shallow": Layer(14, 0.9, (0.8, 0.15, 0.05), up=60),
        "intermediate": Layer(90, 0.967, (0.05, 0.8, 0.15), up=80),
        "deep": Layer(365, 0.988, (0.05, 0.15, 0.8)),
    },
    reflections="deep",
    top_k=5,
    by_merit=True,
)
# The configuration that is released with it, where reflections have a store of their own.
CODE = Constants(
    {
        "shallow": Layer(3, 0.92, (0.5, 0.45, 0.05), (50.0, 70.0, 90.0), up=60),
        "intermediate": Layer(90, 0.967, (0.05, 0.8, 0.15), up=80, down=60),
        "deep": Layer(365, 0.988, (0.05, 0.15, 0.8), down=80),
        "reflection": Layer(365, 0.988, (0.05, 0.15, 0.8)),
    },
    reflections="reflection",
    top_k=3,
    by_merit=False,
)
CONSTANTS = {"paper": PAPER, "code": CODE}

# What a memory is, and the layer in which it begins. The first seven are the kinds of a user's items.
LAYER_OF = {
    "news": "shallow",
    "rating": "shallow",
    "flow": "shallow",
    "outlook": "intermediate",
    "fundamentals": "intermediate",
    "10-q": "intermediate",
    "10-k": "deep",
    "gap": "shallow",
    "move": "shallow",
    "streak": "shallow",
    "extreme of 20 days": "shallow",
    "extreme of 60 days": "intermediate",
    "extreme of 250 days": "deep",
    "volatility": "intermediate",
    "drawdown": "deep",
}
REFLECTION = "reflection"  # a kind too; its layer is the constants'
