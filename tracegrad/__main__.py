"""Entry point of `python -m tracegrad`: see `tracegrad.cli`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tracegrad.cli import parser
from tracegrad.cli.errors import UsageError
from tracegrad.errors import TracegradError


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, print its lines, and return the exit code."""
    args = parser().parse_args(argv)
    lines = args.run(args)
    try:
        while True:
            print(next(lines), flush=True)
    except StopIteration as end:
        return int(end.value or 0)
    except UsageError as error:
        print(f"tracegrad: {error}", file=sys.stderr)
        return 2
    except TracegradError as error:
        print(f"tracegrad: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader, for example `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
