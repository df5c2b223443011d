// Package racesync tells the race detector that a packet orders memory: what happened
// before a send happened before what follows the receipt of its answer. Links use raw system
// calls and ranks of a host use shared memory, both of which lack the edge that
// syscall.Write and syscall.Read have. As there, one variable stands for all of them, because
// an answer may come by another way, through other processes. In builds without the
// detector the functions are empty.
package racesync
