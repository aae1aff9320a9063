"""Asks the web server in this container whether it is ready; exit status 1 when it is not. Standard library only."""

from __future__ import annotations

import http.client
import os
import sys


def main() -> int:
    """GET /readyz on the container's own port."""
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ.get("PORT") or 8000), timeout=4)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        print(answer.status, answer.read(2000).decode(errors="replace"))
    except OSError as error:
        print(error)
        return 1
    return 0 if answer.status == 200 else 1


if __name__ == "__main__":
    sys.exit(main())
