# lockstitch proxy in a container: docker build -t lockstitch . && docker run -p 127.0.0.1:8484:8484 …
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir --prefix=/installed '.[postgres,proxy,zstd]'

FROM python:3.12-slim
RUN useradd --system --uid 10001 --create-home lockstitch
COPY --from=build /installed /usr/local
USER lockstitch
WORKDIR /home/lockstitch
EXPOSE 8484
STOPSIGNAL SIGTERM
# Other machines get in, so that a token has to be set: in LOCKSTITCH_PROXY_TOKEN, or in a file.
ENTRYPOINT ["lockstitch", "proxy"]
CMD ["--host", "0.0.0.0"]
HEALTHCHECK --interval=30s --timeout=5s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8484/healthz', timeout=4)"]
