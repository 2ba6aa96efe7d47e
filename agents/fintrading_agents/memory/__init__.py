"""FinMem's layered memory: how memories score, move and are forgotten, where they are kept, and what becomes one."""
