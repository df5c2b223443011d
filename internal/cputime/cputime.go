// Package cputime says how the kernel scheduled a process, and how much of the
// processors went to others.
package cputime

import "time"

// Usage is how a process was scheduled since it began.
type Usage struct {
	Ran    time.Duration // on a processor
	Waited time.Duration // runnable, in the run queue of a processor
}

// Sample is the state of the processors' clocks at a time.
type Sample struct {
	At time.Time
	// CPUs is how many processors this process may use. Busy is what tasks used of
	// them, and stolen time; All is Busy with interrupts and idle time.
	CPUs      int
	Busy, All time.Duration
	// Own is what this process and the children that it waited for have used.
	Own time.Duration
	// Throttled is how long a CPU limit of a control group kept processors from this
	// process, the sum over all processors.
	Throttled time.Duration
}

// Others is the share of the processors, from 0 to 1, that this process and its children
// could not use between two samples: other processes used it, a CPU limit withheld it, or
// the machine as a whole was stopped. Interrupts do not count: packets of this process
// cause them too.
func Others(from, to Sample) float64 {
	capacity := to.At.Sub(from.At) * time.Duration(from.CPUs)
	if capacity <= 0 || from.CPUs != to.CPUs {
		return 0
	}
	stopped := max(capacity-(to.All-from.All), 0)
	others := to.Busy - from.Busy + stopped - (to.Own - from.Own) + to.Throttled - from.Throttled
	return min(max(float64(others)/float64(capacity), 0), 1)
}
