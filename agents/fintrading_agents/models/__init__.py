"""Models: what an agent that asks a language model speaks to."""
