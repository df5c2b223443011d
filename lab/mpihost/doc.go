// Package mpihost starts the ranks of the multi-rank runtime (package mpi) and gives
// each of them its env.Env: in a simulated world, where a rank is a coroutine and time
// is virtual ([InWorld]), and as one process a rank in network namespaces.
//
// It knows devices, networks and processes; it knows nothing of messages, and the
// runtime knows nothing of it. What ranks say to each other before they can use the
// fabric goes through it (env.Control), so it is also who tells them that another has
// ended.
//
// A world and all that [World] offers belong to the goroutine that runs InWorld, and to
// its ranks while they run: in a simulated world one runs at a time. What a rank in a
// process is given may be used from several goroutines.
package mpihost
