# The tags keep Podman's bindings free of cgo; every tool that compiles toad needs them.
TAGS    := remote containers_image_openpgp exclude_graphdriver_btrfs exclude_graphdriver_devicemapper
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
BUILD   := CGO_ENABLED=0 go build -trimpath -buildvcs=false

.PHONY: build faults sample test clean
build:
	$(BUILD) -tags "$(TAGS)" -ldflags "-s -w -X main.version=$(VERSION)" -o bin/toad ./cmd/toad

# The same with fault points, for the suites that kill it.
faults:
	$(BUILD) -tags "$(TAGS) faults" -ldflags "-s -w -X main.version=$(VERSION)-faults" -o bin/toad-faults ./cmd/toad

test:
	./scripts/test

clean:
	rm -rf bin
