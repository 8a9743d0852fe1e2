"""The header of a GGUF file, walked once: whether its tables and its tensors lie within the file.

Readers take the lengths in a file at their word: a wrong one keeps them busy for hours, or has them make up the weights
that are missing. Knows the layout and no model. Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import math
import mmap
import reprlib
import struct
from pathlib import Path

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

MAGIC = b"GGUF"
VERSIONS = (2, 3)
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
ALIGNMENT, LAYERS = "general.alignment", ".block_count"
MOST_DIMENSIONS = 4


def check_gguf(path: Path) -> None:
    """Raise ValueError naming file and place if it is no GGUF file, is cut off, or its tables hold something else."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise ValueError(f"{path}: not a GGUF file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                Header(data).check()
            except ValueError as error:
                raise ValueError(f"{path}: broken GGUF file: {error}") from None


class Header:
    """A place in the file that moves on as values are taken; each method raises ValueError for what cannot be."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at, self.order, self.place = data, len(MAGIC), "<", "the header"

    def check(self) -> None:
        """Walk the whole header."""
        version = self.number("I")
        if version % 2**16 == 0:  # written on a machine of the other byte order
            self.order, self.at = ">", len(MAGIC)
            version = self.number("I")
        if version not in VERSIONS:
            raise ValueError(f"version {version}; supported: {', '.join(map(str, VERSIONS))}")
        tensors, pairs = self.number("Q"), self.number("Q")
        numbers: dict[str, int] = {}
        for index in range(pairs):
            self.place = f"entry {index + 1} of {pairs}"
            key = self.text()
            self.place = f"key {reprlib.repr(key)}"
            value = self.value(self.number("I"))
            if value is not None:
                numbers[key] = value
        for key, value in numbers.items():
            if key.endswith(LAYERS) and value > tensors:
                raise ValueError(f"{key} = {value}, with {tensors} tensors in all")
        infos = [self.tensor(index, tensors) for index in range(tensors)]
        self.check_data(infos, numbers.get(ALIGNMENT, 32))

    def check_data(self, infos: list[tuple[str, int, int]], alignment: int) -> None:
        """Whether every tensor (name, offset, bytes) lies within the file."""
        if alignment < 1:
            raise ValueError(f"{ALIGNMENT} = {alignment} is not allowed; it must be a whole number from 1 on")
        start = -(-self.at // alignment) * alignment
        for name, offset, size in infos:
            if start + offset + size > len(self.data):
                raise ValueError(f"tensor {name!r} ends at byte {start + offset + size}, the file at {len(self.data)}")

    def tensor(self, index: int, tensors: int) -> tuple[str, int, int]:
        """Name, offset and bytes of a tensor."""
        self.place = f"tensor {index + 1} of {tensors}"
        name = self.text()
        self.place = f"tensor {reprlib.repr(name)}"
        dimensions = self.number("I")
        if dimensions > MOST_DIMENSIONS:
            raise ValueError(f"{self.place} has {dimensions} dimensions; allowed: at most {MOST_DIMENSIONS}")
        elements = math.prod(self.number("Q") for _ in range(dimensions))
        kind, offset = self.number("I"), self.number("Q")
        if kind not in [each.value for each in GGMLQuantizationType]:
            raise ValueError(f"{self.place} is of the unknown type {kind}")
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        return name, offset, elements // block * block_bytes

    def value(self, kind: int) -> int | None:
        """Take a value; a whole number is returned."""
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            of, count = self.number("I"), self.number("Q")
            if of == STRING:
                for _ in range(count):
                    self.text()
            else:
                self.skip(count * struct.calcsize(self.scalar(of)))
        else:
            found: object = self.take(self.scalar(kind))
            return found if isinstance(found, int) else None
        return None

    def scalar(self, kind: int) -> str:
        """How a value of this type is packed."""
        if kind not in SCALARS:
            raise ValueError(f"{self.place} holds a value of the unknown type {kind}")
        return SCALARS[kind]

    def text(self) -> str:
        """Take a text."""
        length = self.number("Q")
        self.skip(length)
        try:
            return self.data[self.at - length : self.at].decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.place} holds a text that is not UTF-8: {error.reason}") from None

    def number(self, code: str) -> int:
        """Take a whole number."""
        return int(self.take(code))

    def take(self, code: str) -> int | float | bool:
        """Take a number."""
        size = struct.calcsize(self.order + code)
        self.skip(size)
        found: int | float | bool = struct.unpack_from(self.order + code, self.data, self.at - size)[0]
        return found

    def skip(self, size: int) -> None:
        """Pass over bytes."""
        if size > len(self.data) - self.at:
            raise ValueError(f"{self.place} needs {size} bytes more, the file ends after {len(self.data) - self.at}")
        self.at += size
