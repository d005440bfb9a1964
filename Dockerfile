ARG PYTHON=python:3.13.16-slim-trixie

FROM ${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements/run.txt requirements/build.txt requirements/
# The image's own pip fills the virtualenv, which so has neither pip nor build tools.
RUN python -m venv --without-pip /opt/kubecache \
 && pip --python /opt/kubecache/bin/python install --require-hashes -r requirements/run.txt \
 && pip install --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY proxy/ proxy/
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
 && pip --python /opt/kubecache/bin/python install --no-deps --no-index dist/*.whl \
 && /opt/kubecache/bin/python -m compileall -q /opt/kubecache/lib

FROM ${PYTHON}
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="kubecache" \
      org.opencontainers.image.description="A near cache for kube-apiserver" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/kubecache /opt/kubecache
# Nothing is written at run time: the root file system may be read-only.
ENV PATH="/opt/kubecache/bin:${PATH}" PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# A number, so that kubelet can prove runAsNonRoot.
USER 65532:65532
EXPOSE 8001 8002
STOPSIGNAL SIGTERM
ENTRYPOINT ["kubecache"]
CMD ["run"]
