// Package e2e holds the tests that use fabrictest as a user does: the program is
// built once, started as a process, and judged by its exit code, by what it says,
// by what it leaves on disk, and by what is left of it on the machine.
//
// They are about bad times: no privileges, no room on the disk, names that are
// taken, ranks that crash, hang or flood, signals, limits, containers, files that
// mean harm, terminals that go away. What a fabric does to packets is tested
// elsewhere.
//
// Every spec has a copy of the program of its own (a link to it, under a path that
// nobody else uses). By that path, and by a word in their environment, all
// processes are found that the spec has to answer for; at its end there must be
// none, nor a network namespace, a socket or a temporary file of theirs. Specs
// share nothing, and "ginkgo -p" may run them at the same time.
package e2e
