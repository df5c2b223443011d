// Package misuse checks the calls of all ranks of an MPI program, and explains deadlocks.
//
// It reports collectives that do not match, messages and requests that are lost, handles that are never
// freed, errors in the use of windows, and calls that never return. A [Checker] is pure: package mpi
// passes it each call of a rank in simulation (mpi.Options.Misuse), and it keeps its own model of which
// messages match, which ranks wait for which others, and which handles exist.
package misuse
