"""Ways in which files of a store are damaged."""

from collections.abc import Callable

from sweeper.storage.files import Files

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "wrong magic": lambda data: data[:-4] + b"PAR2",
    "bit flipped": lambda data: data[:50] + bytes([data[50] ^ 1]) + data[51:],
}


def flipped(files: Files, path: str, how: str = "bit flipped") -> bytes:
    """Damage the file, and return its new content."""
    data = files.read(path)
    assert data is not None
    files.write(path, DAMAGES[how](data))
    return DAMAGES[how](data)
