"""How much of an agent's score may be memory: probes, invariance under perturbation, and the masked-minus-real gap."""

from fintrading_agents.audit.card import card
from fintrading_agents.audit.report import Plan, audit

__all__ = ["Plan", "audit", "card"]
