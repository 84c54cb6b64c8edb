# Everything that is done to this project by hand. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

MODULES := . internal/pgtest gen clients/go clients/go/messaging clients/go/messaging/cmd/outbox bench e2e examples/charge examples/payments examples/shop
TOOLS := $(CURDIR)/.cache/bin
export PATH := $(TOOLS):$(PATH)

# The race detector needs cgo and a C compiler. Without one the tests run all the
# same, and say so.
RACE := $(shell scripts/race-flag)

.PHONY: help build generate generated lint deploy check test fuzz bench demo payments shop shop-chaos torture clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build bin/idemd.
	go build -trimpath -o bin/idemd ./cmd/idemd

# Tools come from modules of their own, one each: together they downgrade one another.
$(TOOLS)/%: tools/%/go.mod tools/%/go.sum
	@cd tools/$* && GOWORK=off go build -o $@ $$(awk '$$1 == "tool" {print $$2}' go.mod)
	@touch $@

PLUGINS := $(TOOLS)/buf $(TOOLS)/protoc-gen-go $(TOOLS)/protoc-gen-go-grpc

generate: $(PLUGINS) ## Generate code from the .proto files.
	buf generate
	cd examples/payments && buf generate

generated: $(PLUGINS) ## Fail if generated code is not what the .proto files generate.
	scripts/check-generated

lint: $(PLUGINS) $(TOOLS)/golangci-lint ## Lint everything.
	buf lint
	buf breaking --against proto/baseline.binpb
	buf format --diff --exit-code
	buf lint examples/payments
	buf format --diff --exit-code examples/payments
	for module in $(MODULES); do (cd $$module && golangci-lint run ./...); done
	scripts/lint-shell

deploy: $(TOOLS)/compose-go $(TOOLS)/kubectl-validate ## Check what is in deploy/, and build and run the image.
	scripts/check-deploy

check: ## What to run before a commit: build, vet and the quick tests; under a minute.
	go build ./... && go vet ./...
	go test -short ./internal/reservation/... ./internal/store ./internal/store/codec ./internal/engine/... ./internal/ttl/... ./internal/access/... ./internal/config/... ./internal/grpcserver/... ./internal/lint/...

test: ## Run all tests of all modules, against a real PostgreSQL too.
	scripts/need-postgres
	@if [ -z "$(RACE)" ]; then echo "no C compiler: the tests run without the race detector"; fi
	for module in $(MODULES); do (cd $$module && go test $(RACE) ./...); done
	@# Memory and disk can't be measured under the race detector: these two are built out or skipped there.
	if [ -n "$(RACE)" ]; then go test -run 'MemoryIsFlat|TheDiskLevelsOff' ./internal/daemon ./internal/store/pebblestore; fi
	for module in $(MODULES); do (cd $$module && GOWORK=off go vet ./...); done
	scripts/test-vectors

fuzz: ## Fuzz what parses, for a minute each.
	go test -fuzz FuzzDecodeRecord -fuzztime 60s ./internal/store/codec
	go test -fuzz FuzzParse -fuzztime 60s -fuzzminimizetime 20x ./internal/config
	go test -fuzz FuzzAuthorization -fuzztime 60s -fuzzminimizetime 20x ./internal/access
	cd clients/go && go test -fuzz FuzzJSON -fuzztime 60s ./fingerprint
	cd clients/go && go test -fuzz FuzzRules -fuzztime 60s ./fingerprint

bench: ## Measure idemd beside echo and plain SQL; writes docs/performance.md's table.
	scripts/need-postgres
	cd bench && go run . -out ../docs/performance.json

demo: build ## Show one charge: fifty clients, half of them hang up, idemd is killed with -9.
	cd examples/charge && go run . --idemd $(CURDIR)/bin/idemd

payments: build ## Start the parts of examples/payments, for the tour in its README.
	cd examples/payments && go run . --idemd $(CURDIR)/bin/idemd

shop: build ## Start the parts of examples/shop: from an order to its mail, by a broker.
	scripts/need-postgres
	cd examples/shop && go run . --idemd $(CURDIR)/bin/idemd

RUNS ?= 1
shop-chaos: N = 1000
shop-chaos: build ## Kill all parts of the shop while N=1000 orders are placed, and count; RUNS=20 in a row.
	scripts/need-postgres
	cd examples/shop && go build -o $(CURDIR)/bin/shop .
	for run in $$(seq $(RUNS)); do bin/shop --listen 127.0.0.1:0 --idemd bin/idemd --chaos $(N) 2>bin/shop-chaos.log; done

N ?= 100000
torture: build ## Charge N=100000 orders through every fault, on both stores, and check the ledger.
	scripts/need-postgres
	go build -o bin/charge ./examples/charge
	bin/charge --torture $(N) --idemd bin/idemd
	go run ./e2e/cmd/withpostgres bin/charge --torture $(N) --idemd bin/idemd --store postgres --postgres {dsn}

clean: ## Remove what was built.
	rm -rf bin .cache
