"""The players of fintrading-gym: found by entry point, never imported by the game."""
