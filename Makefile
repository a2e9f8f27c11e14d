VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
BUILD   := CGO_ENABLED=0 go build -trimpath -buildvcs=false

PREFIX  ?= /usr/local
BIN     ?= bin/toad
# What writes the manual pages, where BIN is for another architecture.
TOAD    ?= $(BIN)

.PHONY: build faults sample install release test clean
build:
	$(BUILD) -ldflags "-s -w -X main.version=$(VERSION)" -o $(BIN) ./cmd/toad

# The same with fault points, for the suites that kill it.
faults:
	$(BUILD) -tags faults -ldflags "-s -w -X main.version=$(VERSION)-faults" -o bin/toad-faults ./cmd/toad

# The command, toad-as for administrators, manual pages and completions. As root.
install: build
	install -D -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin/toad
	install -m 755 scripts/toad-as $(DESTDIR)$(PREFIX)/bin/toad-as
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	$(TOAD) man --dir $(DESTDIR)$(PREFIX)/share/man/man1
	install -D -m 644 cmd/toad/completion/toad.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/toad
	install -D -m 644 cmd/toad/completion/toad.zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_toad
	install -D -m 644 cmd/toad/completion/toad.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/toad.fish

# What a release consists of, in dist: make release TAG=v1.2.3 KEY=release.key
release:
	./scripts/release $(if $(ARCH),--arch $(ARCH)) --key "$(KEY)" "$(TAG)"

test:
	./scripts/test

clean:
	rm -rf bin dist
