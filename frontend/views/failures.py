"""What people see when something is not there, not allowed, or broken."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """A form that was open too long, or was not ours."""
    return render(request, "403_csrf.html", {"reason": reason}, status=403)
