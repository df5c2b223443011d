// Package process has facts about this process that the standard library does not give:
// the identity of the running goroutine ([Goroutine]), the order of memory accesses across
// packets for the race detector ([RaceSend], [RaceReceived]), and CPU time with the delay in
// run queues and the share of other processes ([UsedCPU], [SampleCPU]).
package process
