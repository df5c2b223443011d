// Package nstest gives tests two hosts joined by one wire: two network
// namespaces with a veth pair between them. It knows nothing of protocols and
// is for tests and benchmarks only. Main gives tests on loopback a network of
// their own.
//
// The namespaces have no name and no mount: they live as long as a descriptor
// or a socket refers to them, so that a killed test leaves nothing behind.
package nstest
