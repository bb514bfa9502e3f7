"""A lock on an open file that ends with its process, however that ends."""

from __future__ import annotations

import sys

__all__ = ["lock"]

if sys.platform == "win32":
    import msvcrt
    import os

    _FAR = 1 << 40

    def lock(descriptor: int) -> None:
        """Lock the file, at once or not at all. Raises: ``BlockingIOError`` when it is locked."""
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(error.errno, "another process holds the file") from None
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)

else:
    import fcntl

    def lock(descriptor: int) -> None:
        """Lock the file, at once or not at all. Raises: ``BlockingIOError`` when it is locked."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
