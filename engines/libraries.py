"""The model libraries as readers of other people's files: kept silent, and their errors brought into one line.

transformers, tokenizers and gguf check little of what a file holds: wrong contents show as whatever error the code
then runs into. That such an error speaks of the file is what a caller states by naming the file.
"""

import io
import logging
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

from huggingface_hub.errors import StrictDataclassError
from jinja2 import TemplateError

# RuntimeError is torch's for sizes that do not fit, and Python's for a recursion without end.
LIBRARY_ERRORS = (
    ArithmeticError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    StrictDataclassError,
    struct.error,
    TemplateError,
    TypeError,
    ValueError,
)
LONGEST_REASON = 300


@contextmanager
def reading(path: Path, task: str) -> Iterator[None]:
    """For a library's call that reads `path`: nothing on stderr; a failure is a ValueError with path and task."""
    try:
        with silent():
            yield
    except Exception as error:
        # tokenizers raises plain Exceptions, of no class of their own.
        if type(error) is not Exception and not isinstance(error, LIBRARY_ERRORS):
            raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ValueError(f"{path}: {task}: {reason[:LONGEST_REASON]}") from error


@contextmanager
def silent() -> Iterator[None]:
    """Keeps log lines, warnings and progress bars off stderr; some bars have no switch but the stream itself."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
