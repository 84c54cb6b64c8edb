# One static binary in an image with nothing else.
#
#   docker build -t idemd .
#   docker run -p 127.0.0.1:7070:7070 -v idemd-data:/data idemd

FROM golang:1.26 AS build
WORKDIR /src
# Modules first: they change less often than the code. The workspace is for
# development; the image builds from the root module alone.
COPY go.mod go.sum ./
COPY gen/go.mod gen/go.sum gen/
COPY internal/pgtest/go.mod internal/pgtest/
RUN GOWORK=off go mod download
COPY . .
RUN GOWORK=off CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /out/idemd ./cmd/idemd \
    && mkdir -p /out/data

FROM scratch
COPY --from=build /out/idemd /idemd
# The volume's owner is the user that the daemon runs as.
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
VOLUME /data
# Within a container the daemon must listen beyond loopback, and without a configuration
# it asks nobody who they are: publish its ports to trusted networks only, as above. With
# one that has identities, set IDEMD_INSECURE=false, so that nothing goes in the clear
# unnoticed; with one that names PostgreSQL, IDEMD_DATA_DIR= (empty).
ENV IDEMD_DATA_DIR=/data \
    IDEMD_GRPC_ADDR=0.0.0.0:7070 \
    IDEMD_HTTP_ADDR=0.0.0.0:7071 \
    IDEMD_INSECURE=true
EXPOSE 7070 7071
# Where the daemon speaks TLS, so must the check: IDEMD_TLS=true, and IDEMD_CA_FILE and
# IDEMD_SERVER_NAME as its certificate wants it. It needs no identity.
HEALTHCHECK --interval=5s --timeout=3s --start-period=5s CMD ["/idemd", "health", "--addr", "127.0.0.1:7070"]
ENTRYPOINT ["/idemd"]
CMD ["serve"]
