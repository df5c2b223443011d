// Package trials holds the tests that try the runtime of many ranks as a whole, and have
// no other package that they are about: whatever can be chosen is drawn by lot; all
// workloads run as processes in namespaces; and ranks, cables and rails fail, at any time.
//
// What decides is always the same: data is never wrong, what can go on does, and
// everybody else ends with an error that says so, soon.
//
// Without flags the tests take a small part of what there is. To hunt:
//
//	go test ./mpi/trials -run Random -seeds 1000
//	go test ./mpi/trials -run 'Namespaces|Phase' -everywhere
//
// A failure names the one command that repeats it.
package trials
