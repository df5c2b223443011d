// Package racesync tells the race detector that a packet orders memory: what happened
// before a send happened before what follows the receipt of its answer. Links use raw system
// calls, which lack the edge that syscall.Write and syscall.Read have. As there, one
// variable stands for all sockets, because a packet may come back by another process. In
// builds without the detector the functions are empty.
package racesync
