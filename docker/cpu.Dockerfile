# syntax=docker/dockerfile:1
# CPU image with compiled kernels: docker build -f docker/cpu.Dockerfile -t dask-simjoin .
# Kernels are made for NUMBA_CPU_NAME: haswell and newer processors run them (AVX2).
FROM python:3.13-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /dist /src

FROM python:3.13-slim-bookworm
ARG NUMBA_CPU_NAME=haswell
ENV NUMBA_CPU_NAME=${NUMBA_CPU_NAME} NUMBA_CPU_FEATURES="" NUMBA_CACHE_DIR=/opt/kernels PYTHONUNBUFFERED=1
COPY --from=build /dist /dist
RUN pip install --no-cache-dir "$(ls /dist/*.whl)[cli,graph]" && dask-simjoin compile --processes 4
RUN useradd --create-home simjoin
USER simjoin
WORKDIR /home/simjoin
ENTRYPOINT ["dask-simjoin"]
CMD ["--help"]
