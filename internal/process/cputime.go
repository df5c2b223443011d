// Package process has facts about this process that the standard library does not give:
// the identity of the running goroutine ([Goroutine]), the order of memory accesses across
// packets for the race detector ([RaceSend], [RaceReceived]), CPU time with the delay in run
// queues and the share of other processes ([UsedCPU], [UsedCPUOf], [SampleCPU]), and its CPUs
// ([UsableCPUs], [BindToCPU]) and network namespaces ([InNetNS]).
package process

import "time"

// CPUUsage is the scheduling of a process since its start.
type CPUUsage struct {
	Ran    time.Duration // on a CPU
	Waited time.Duration // in a run queue
}

// CPUSample is a snapshot of CPU time counters.
type CPUSample struct {
	At time.Time
	// CPUs is the number of CPUs in the affinity mask of this process. Busy is their
	// user, system and steal time; All adds interrupt and idle time.
	CPUs      int
	Busy, All time.Duration
	// Own is the CPU time of this process and its children, running or reaped.
	Own time.Duration
	// Throttled is the time for which a CPU limit throttled this process, summed over all CPUs.
	Throttled time.Duration
}

// OthersShare returns the share of CPU time between two samples, from 0 to 1, that this process
// could not use: other processes used it, a CPU limit withheld it, or the machine was suspended. It
// returns 0 if no time has passed or the number of CPUs has changed.
func OthersShare(from, to CPUSample) float64 {
	capacity := to.At.Sub(from.At) * time.Duration(from.CPUs)
	if capacity <= 0 || from.CPUs != to.CPUs {
		return 0
	}
	suspended := max(capacity-(to.All-from.All), 0) // the kernel counts neither work nor idle time while the machine is suspended
	others := to.Busy - from.Busy + suspended - (to.Own - from.Own) + to.Throttled - from.Throttled
	return min(max(float64(others)/float64(capacity), 0), 1)
}
