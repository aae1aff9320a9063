# syntax=docker/dockerfile:1

# One image for every part: web server, workers, beat and the one-shot init. See docker-compose.yml.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/venv
COPY requirements.txt /build/
RUN /opt/venv/bin/pip install --require-hashes --only-binary :all: --no-deps -r /build/requirements.txt
COPY . /opt/rota
WORKDIR /opt/rota
RUN /opt/venv/bin/python -m compileall -q /opt/venv/lib . \
    && ROTA_COLLECT_STATIC=1 /opt/venv/bin/python manage.py collectstatic --noinput --verbosity 0

FROM python:${PYTHON}-slim
LABEL org.opencontainers.image.title="Rota" \
    org.opencontainers.image.description="The duty roster of a GPU cluster" \
    org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --system --gid 10001 rota \
    && useradd --system --uid 10001 --gid rota --home-dir /var/lib/rota --shell /usr/sbin/nologin rota \
    && install -d -o rota -g rota -m 0700 /var/lib/rota
COPY --from=build /opt/venv /opt/venv
# The code belongs to root: what serves it cannot change it.
COPY --from=build /opt/rota /opt/rota
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/opt/rota/client:/opt/rota/platform:/opt/rota \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DJANGO_SETTINGS_MODULE=rota.settings \
    ROTA_HOME=/var/lib/rota \
    ROTA_BIND=0.0.0.0 \
    ROTA_LOG_FORMAT=json \
    PORT=8000
USER rota
WORKDIR /opt/rota
VOLUME /var/lib/rota
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 CMD ["python", "deploy/healthcheck.py"]
CMD ["python", "-m", "rota.serve"]
