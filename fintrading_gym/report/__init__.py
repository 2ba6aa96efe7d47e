"""A board as one page for a browser: `command.report` is `fintrading report`."""
