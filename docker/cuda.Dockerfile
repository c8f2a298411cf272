# syntax=docker/dockerfile:1
# CUDA image with compiled kernels of the CPU, and of the GPU if the build sees one:
#   docker build -f docker/cuda.Dockerfile -t dask-simjoin:cuda .
#   docker run --gpus all -v kernels:/opt/kernels/cupy dask-simjoin:cuda compile --backend cudf --dims 2,16
# `docker build` has no GPU unless its daemon's default runtime is nvidia. The second command fills a volume instead.
FROM python:3.13-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /dist /src

FROM nvidia/cuda:13.0.1-base-ubuntu24.04
ARG NUMBA_CPU_NAME=haswell
ARG DIMS=2,16
ENV NUMBA_CPU_NAME=${NUMBA_CPU_NAME} NUMBA_CPU_FEATURES="" NUMBA_CACHE_DIR=/opt/kernels \
    CUPY_CACHE_DIR=/opt/kernels/cupy PYTHONUNBUFFERED=1 PATH=/opt/venv/bin:$PATH
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-venv && \
    rm -rf /var/lib/apt/lists/* && python3 -m venv /opt/venv
COPY --from=build /dist /dist
RUN pip install --no-cache-dir "$(ls /dist/*.whl)[cli,graph,cuda13]" && dask-simjoin compile --processes 4
RUN if python -c "import cupy; cupy.cuda.runtime.getDeviceCount()" 2>/dev/null; \
    then dask-simjoin compile --backend cudf --dims "${DIMS}"; \
    else echo "no GPU: kernels are compiled at first use, or into a volume" ; fi
RUN useradd --create-home simjoin && mkdir -p /opt/kernels/cupy && chown simjoin /opt/kernels/cupy
USER simjoin
WORKDIR /home/simjoin
ENTRYPOINT ["dask-simjoin"]
CMD ["--help"]
