"""`python -m fintrading_gym` is the command line."""

from fintrading_gym.cli import main

main()
