"""The tables of a board's file, as SQL. A change to them is another `SCHEMA_VERSION`."""

SCHEMA_VERSION = 1  # in PRAGMA user_version
APPLICATION = 0x46545247  # in PRAGMA application_id: "FTRG"
SCHEMA = """
CREATE TABLE runs (                 -- one a call of the command
  id       INTEGER PRIMARY KEY,
  started  TEXT NOT NULL,           -- UTC, ISO 8601
  ended    TEXT,                    -- NULL: it was killed, or goes on
  outcome  TEXT,                    -- 'finished', or what ended it before
  version  TEXT NOT NULL,           -- of fintrading-gym
  machine  TEXT NOT NULL,
  settings TEXT NOT NULL            -- JSON: what was asked for
);
CREATE TABLE episodes (             -- one agent on one task
  id      INTEGER PRIMARY KEY,
  key     TEXT NOT NULL UNIQUE,     -- sha256 of recipe
  recipe  TEXT NOT NULL,            -- JSON: all that makes the episode what it is
  run     INTEGER NOT NULL REFERENCES runs,
  aside   INTEGER REFERENCES runs,  -- NULL: it is on the board; else the run that set it aside
  agent   TEXT NOT NULL,
  world   TEXT NOT NULL,
  cell    TEXT NOT NULL,
  persona TEXT,                     -- NULL: the agent ignores it
  seed    INTEGER,                  -- NULL: the agent ignores it
  score   REAL,                     -- NULL: it failed
  failure TEXT,                     -- NULL: it was played to its end
  "row"   TEXT NOT NULL,            -- JSON: every column of the leaderboard's row
  sha256  TEXT                      -- of the episode's line in `fintrading export --jsonl`
);
CREATE TABLE steps (                -- one a decision
  episode    INTEGER NOT NULL REFERENCES episodes ON DELETE CASCADE,
  day        INTEGER NOT NULL,      -- 1, 2, ...
  date       TEXT,                  -- the day whose close was seen; NULL, here and below: the agent failed on this day
  price      REAL,                  -- its adjusted close, USD
  action     INTEGER,               -- 0 sell, 1 hold, 2 buy: what was carried out
  valid      INTEGER,               -- 0: the agent gave no decision, and the environment held
  position   INTEGER,               -- -1, 0, +1 after the decision
  log_return REAL,                  -- earned until the next close, costs taken off
  market     REAL,                  -- log return of the stock until the next close
  overnight  REAL,                  -- the part of it that the position before the decision earns
  decision   TEXT,                  -- JSON: as the agent gave it; NULL: it gave none
  log        TEXT,                  -- JSON: what the agent kept of the day beside its calls; NULL: it keeps no log
  PRIMARY KEY (episode, day)
) WITHOUT ROWID;
CREATE TABLE calls (                -- one a question to a model
  episode    INTEGER NOT NULL REFERENCES episodes ON DELETE CASCADE,
  day        INTEGER NOT NULL,
  number     INTEGER NOT NULL,      -- of the day, 1, 2, ... in the order of the asking
  stage      TEXT,                  -- which of an agent's questions it is
  messages   TEXT NOT NULL,         -- JSON: as sent
  reply      TEXT,                  -- JSON: all of the reply; NULL: there was none
  verdict    TEXT,                  -- JSON: the decision read from it; NULL: none was looked for
  failure    TEXT,                  -- why there was no reply
  tokens_in  INTEGER,               -- NULL, here and below: unknown
  tokens_out INTEGER,
  cost_usd   REAL,
  latency    REAL,                  -- seconds of the attempt that was answered
  cached     INTEGER,               -- 1: it was paid for before
  PRIMARY KEY (episode, day, number)
) WITHOUT ROWID;
"""
