"""A program: serve one file of weights on loopback, OpenAI's API, until standard input ends.

It stands alone, so that `local.serve` can start it by its path: `python -P server.py FILE NAME CONTEXT`.
"""

import os
import signal
import sys


def main(file: str, name: str, context: int) -> None:
    """Load, print the address as the one line of output, and serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it may still have a day to finish
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path, settings.model_alias = file, {name}
    settings.port = 0  # any free one
    settings.n_ctx = context
    settings.n_parallel = 1
    settings.n_batch = settings.n_ubatch = 512
    settings.cpuparams.n_threads = 1  # one token at a time: a second thread waits more than it works
    settings.cpuparams_batch.n_threads = 2
    settings.cache_prompt = False  # else an answer depends, in the third digit, on the requests before it
    settings.cache_ram_mib = 0  # of prompts not in use; the default is 8 GiB
    settings.warmup = settings.ui = False
    settings.verbosity = -1
    server = xllamacpp.Server(settings)
    try:
        print(server.listening_address, flush=True)
        sys.stdin.read()
    finally:
        os._exit(0)  # past the server's destructor, which waits for ever for a request under way


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
