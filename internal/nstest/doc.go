// Package nstest provides network namespaces for tests and benchmarks: Pair creates two
// hosts connected by a veth pair, and Main runs the tests of a package in a separate
// network namespace.
//
// The namespaces have no name and no mount. They exist as long as a descriptor or socket
// refers to them, so a killed test leaves none behind.
package nstest
