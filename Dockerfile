# The NVIDIA driver comes from the host (--gpus all); without it the lessons play their recordings.
FROM python:3.12.14-slim-bookworm@sha256:0f5b26b9518d002b6173fd61daad821fa340635ebfec5bba471013f9ca114579

# torch.compile builds its launchers with a C compiler
RUN apt-get update \
    && apt-get install --yes --no-install-recommends "gcc=4:12.2.*" "libc6-dev=2.36-*" \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home learner \
    && install --directory --owner learner /course

# docker build --build-arg CPU=1: PyTorch's CPU build, a twelfth of the CUDA build's size
ARG CPU

WORKDIR /course
COPY --chown=learner . .
RUN pip install --no-cache-dir "$(grep ^uv== constraints.txt)" \
    && uv pip install --system --no-cache --constraint constraints.txt --editable . ${CPU:+--torch-backend=cpu} \
    && install --directory --owner learner my_lessons traces/local

USER 1000
EXPOSE 8888
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8888/api', timeout=4)"]

# the server answers outside of the container; its token stays, and docker run publishes the port on localhost only
ENTRYPOINT ["python", "-m", "course.commands.lab", "--ip=0.0.0.0", "--port=8888", "--no-browser"]
