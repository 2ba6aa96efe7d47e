"""The memorisation guard for free text: `EntityMap("TSLA").neuter(text)`, and `.restore(text)`."""

from fintrading_agents.neutering.companies import Ambiguous, Company
from fintrading_agents.neutering.entities import EntityMap, Found, for_task

__all__ = ["Ambiguous", "Company", "EntityMap", "Found", "for_task"]
