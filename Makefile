# Short names for what anyone can also type. Steps of .ci/run do the work.

.PHONY: build test race vet lint fmt fuzz cross conform docs bench kernel kernel-siw check all

build: ; go build ./...
test:  ; .ci/run test
race:  ; .ci/run race
vet:   ; .ci/run vet
lint:  ; .ci/run format modules lint
fmt:   ; .ci/lint fmt
fuzz:  ; FUZZTIME=$(or $(T),3s) .ci/run fuzz
cross: ; .ci/run cross
conform: ; .ci/run conform
docs:  ; .ci/run docs
bench: ; go test -run '^$$' -bench . -benchmem $(or $(P),./...)
kernel: ; lab/interop/run
kernel-siw: ; lab/interop/run siw
check: ; .ci/run test race vet lint
all:   ; .ci/run
