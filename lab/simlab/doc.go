// Package simlab runs scenarios in simulation: one process, virtual time, a coroutine for each
// rank, and an emulated NIC on every port. The same scenario and seed give the same result and
// capture, byte for byte, except for the wall-clock time.
//
// It opens no sockets and needs no privileges; it writes captures only. Runs are
// independent and may be concurrent.
package simlab
