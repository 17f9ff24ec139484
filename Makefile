# make build   bin/snapfs
# make demo    a tour of the program, on a store and a workspace of its own
# make test    all checks and all tests
# make check   what needs no run of the tests: gofmt, vet, staticcheck, go.mod
# make fuzz    every fuzz target for FUZZTIME each
# make bench   saves, restores and the mount beside tar, cp, the disk, git, restic and borg: a Markdown table
# make soak    hundreds of kills, the tests again and again, and long fuzzing: several hours

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c

FUZZTIME ?= 10s
SOAKTIME ?= 2m
SOAKRUNS ?= 5

# Every operation of the disk fails or loses power once; prints how many points were tried.
FAULTS = go test -race -v -timeout=0 -run '^TestEvery' ./snapshot ./index/journal | grep -v '^=== '

# Begun first, so that no processor waits for them in the end.
LONGEST = ./snapshot ./restore ./cmd/snapfs ./capture

.PHONY: build demo test check fuzz bench soak

build:
	go build -o bin/snapfs ./cmd/snapfs

demo: build
	scripts/demo.sh

test: check
	scripts/setup.sh
	go test -race -timeout=20m -skip '^TestEvery' $(LONGEST) ./...
	$(FAULTS)

check:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w $$unformatted"; exit 1; fi
	go vet ./...
	go tool staticcheck ./...
	go mod tidy -diff

fuzz:
	FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

bench:
	scripts/setup.sh restic borg
	go run ./scripts/bench

soak:
	SNAPFS_LARGE=1 go test -v -count=1 -timeout=0 -run '^TestKill$$' ./cmd/snapfs
	SNAPFS_LARGE=1 $(FAULTS)
	SNAPFS_LARGE=1 go test -race -skip '^TestKill$$|^TestEvery' -count=$(SOAKRUNS) -timeout=0 ./...
	FUZZTIME=$(SOAKTIME) scripts/fuzz.sh
