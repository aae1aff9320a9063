"""A replica's output on disk: segments named by where they begin, so that offsets go on over rotation.

`output.<offset>.log`, the offset of its first byte in 16 digits: no file is ever renamed, a reader that has opened one
keeps it, and a segment that is gone is simply not listed any more.
"""

from __future__ import annotations

import errno
import os

PREFIX, SUFFIX = "output.", ".log"


def segment(offset: int) -> str:
    """File name of the segment that begins at `offset`."""
    return f"{PREFIX}{offset:016d}{SUFFIX}"


def segments(folder: str) -> list[int]:
    """Where the segments that are still there begin, in order; empty when there is no such folder."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    middle = (name[len(PREFIX) : -len(SUFFIX)] for name in names if name.startswith(PREFIX) and name.endswith(SUFFIX))
    return sorted(int(digits) for digits in middle if digits.isdigit())


class Writer:
    """Appends to the newest segment, begins another when it is full and drops the oldest.

    It never raises: where the disk is full or broken, bytes are dropped and counted, and once writing works again a
    line in the log says how many. Offsets count what was really written.
    """

    def __init__(self, folder: str, *, size: int, keep: int) -> None:
        """At most `keep` segments of `size` bytes each stay."""
        self.folder, self.size, self.keep = folder, max(1, size), max(1, keep)
        self.begin = 0  # of the open segment
        self.length = 0  # of the open segment
        self.dropped = 0  # bytes that could not be written since the last that could
        self.lost = 0  # all bytes that were ever dropped
        self.why = ""
        self.fd = -1

    def write(self, data: bytes) -> None:
        """Append; splits at segment borders."""
        if self.dropped:
            notice = f"\n[rota: {self.dropped} bytes of output lost: {self.why}]\n".encode()
            if self._append(notice) < len(notice):
                return self._drop(len(data))
            self.dropped = 0
        while data:
            if self.length >= self.size:
                self._rotate()
            done = self._append(data[: self.size - self.length])
            if not done:
                return self._drop(len(data))
            data = data[done:]
        return None

    def close(self) -> None:
        """Close the open segment."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _append(self, data: bytes) -> int:
        """Write into the open segment what fits on the disk, answer how many bytes that were."""
        try:
            if self.fd < 0:
                path = os.path.join(self.folder, segment(self.begin))
                self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            done = os.write(self.fd, data)
        except OSError as error:
            self.why = os.strerror(error.errno or errno.EIO)
            self.close()  # opened anew next time: the disk may have been mounted again
            return 0
        self.length += done
        return done

    def _drop(self, count: int) -> None:
        self.dropped += count
        self.lost += count

    def _rotate(self) -> None:
        self.close()
        self.begin += self.length
        self.length = 0
        for old in segments(self.folder)[: -(self.keep - 1) or None]:
            try:
                os.unlink(os.path.join(self.folder, segment(old)))
            except OSError as error:
                self.why = os.strerror(error.errno or errno.EIO)
