# The team server: docker build -t triskele . (docs/deploy/compose.yaml runs it with Postgres).
FROM python:3.13-slim AS build
WORKDIR /source
COPY locks/server.txt locks/
RUN python -m venv /opt/triskele && /opt/triskele/bin/pip install --no-cache-dir --require-hashes -r locks/server.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/triskele/bin/pip install --no-cache-dir --no-deps .

FROM python:3.13-slim
COPY --from=build /opt/triskele /opt/triskele
RUN install --directory --owner=10001 --group=10001 --mode=0700 /data
ENV PATH=/opt/triskele/bin:$PATH TRISKELE_HOME=/data TRISKELE_PRIVACY_KEY=file
USER 10001:10001
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s CMD ["triskele", "serve", "--status"]
CMD ["triskele", "serve", "--http", "0.0.0.0:8080"]
