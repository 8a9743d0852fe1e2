"""How a command ends on Ctrl-C: one line on stderr and exit code 130, no traceback.

Imports next to nothing, since an interrupt may come while everything else is being imported.
"""

import sys

EXIT_CODE = 130


class OneLineOnInterrupt:
    """A `with` block that an interrupt ends in one line; for what leaves no state that a user would have to know of."""

    def __enter__(self) -> None:
        """Nothing is set up."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyboardInterrupt):
            sys.stderr.write("streak: interrupted; the same command starts again\n")
            sys.exit(EXIT_CODE)
