# The agent: one static binary, for a user without privileges, and nothing else.
#
#	docker build -t conclave --build-arg VERSION=$(git describe --tags --always --dirty) .
#	docker run -v conclave:/data conclave agent --help

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
COPY cmd/conclave/go.mod cmd/conclave/go.sum cmd/conclave/
COPY contrib/consulapi/go.mod contrib/consulapi/go.sum contrib/consulapi/
RUN go -C cmd/conclave mod download
COPY . .
# What conclave version shows: the repository's history is not in the image's context. Default: (devel).
ARG VERSION
# Without a path of this machine or a table of symbols in it. A volume takes the owner of /data from the image.
RUN CGO_ENABLED=0 GOWORK=off go -C cmd/conclave build -trimpath -ldflags="-s -w -X github.com/conclave-go/conclave/internal/version.release=$VERSION" -o /conclave . && mkdir /data

FROM scratch
COPY --from=build /conclave /conclave
COPY --from=build --chown=65532:65532 /data /data
USER 65532:65532
VOLUME /data
ENV CONCLAVE_DIR=/data CONCLAVE_BIND=0.0.0.0:7001 CONCLAVE_HTTP=0.0.0.0:7101
EXPOSE 7001 7101
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["/conclave", "health", "--timeout", "2s"]
ENTRYPOINT ["/conclave"]
CMD ["agent"]
