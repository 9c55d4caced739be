# docker build -t addml . && docker run --read-only --tmpfs /tmp -p 127.0.0.1:8765:8765 \
#     -e ADDML_TOKEN=... -v "$PWD/shop.model:/models/shop.model:ro" addml /models/shop.model
FROM python:3.12-slim AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src src
RUN pip wheel --no-cache-dir --constraint constraints.txt --wheel-dir /wheels '.[web,excel]'

FROM python:3.12-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index /wheels/*.whl \
    && rm -rf /wheels \
    && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin addml
USER 10001
ENV PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
EXPOSE 8765
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s CMD ["python", "-c", \
    "from urllib.request import urlopen; urlopen('http://127.0.0.1:8765/api/v1/health', timeout=4)"]
ENTRYPOINT ["addml", "serve", "--host", "0.0.0.0"]
