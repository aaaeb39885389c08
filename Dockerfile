# The one image: controller, coordinator, agent and command line. Built from a checkout after `npm ci`:
#
#     docker build -t fenceline .      or podman build, or buildah bud
#
# BASE needs Node 24 as `node` on its PATH and nothing else: no shell, no package manager, no network.
ARG BASE=docker.io/library/node:24-slim

FROM ${BASE} AS build
WORKDIR /build
COPY . .
RUN ["node", "deploy/image/assemble.ts", "/app"]

FROM ${BASE}
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="fenceline" \
      org.opencontainers.image.description="Fencing tokens for Kubernetes, from the Lease to the resource that refuses a stale write" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /app /app
WORKDIR /app
ENV NODE_ENV=production
USER 65532:65532
# Controller and coordinator: 8443 and 9464. Agent: 7474.
EXPOSE 8443 9464 7474
ENTRYPOINT ["node", "/app/bin/fenceline.js"]
CMD ["version"]
