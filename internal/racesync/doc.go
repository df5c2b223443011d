// Package racesync tells the race detector that packets order memory accesses: a send
// happens before the receipt of its answer. Raw system calls and shared memory lack the
// happens-before edges of syscall.Write and syscall.Read. As in package syscall, one
// variable is used for all packets, because an answer may arrive on another path. Without
// the race detector the functions are empty.
package racesync
