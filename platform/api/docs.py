"""The description of the API and the page to try it out on, both for everybody: they tell nothing about this place."""

from __future__ import annotations

from typing import Any

from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.permissions import AllowAny


class SchemaView(SpectacularAPIView):
    """OpenAPI 3."""

    authentication_classes: Any = ()
    permission_classes: Any = (AllowAny,)


class DocsView(SpectacularSwaggerSplitView):
    """Swagger UI, without any script or style in the page itself. Works with the browser's session too."""

    url_name = "schema"
    authentication_classes: Any = ()
    permission_classes: Any = (AllowAny,)
    template_name = "api/docs.html"
    title = "Rota API"
