// Package simlab runs scenarios in a simulated world: one process, virtual time,
// a coroutine a rank, an emulated NIC on every port. The same scenario with the
// same seed gives the same result and the same capture, byte for byte, but for
// how long it took on the wall.
//
// It opens no socket and needs no privileges; the one thing it touches is the
// folder that captures go to. Runs know nothing of each other: several may be
// under way at once.
package simlab
