// Package e2e tests fabrictest as a user runs it: the program is built once and started as a
// process. The tests check its exit code, its output, its files, and what it leaves running.
//
// They cover faults: no privileges, a full disk, names in use, ranks that crash, hang or flood
// their output, signals, time limits, containers, hostile files and closed terminals. Other
// packages test what a fabric does to packets.
//
// Every spec has its own link to the program, under a unique path. This path, and a token in the
// environment, identify all processes of the spec. At its end there must be none, and no network
// namespace, socket or temporary file of theirs. Specs share nothing and can run in parallel.
//
// The tests need the build tag e2e: go test -tags e2e ./e2e.
package e2e
