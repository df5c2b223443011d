// Package lab has the parts of running a scenario that all tiers share. A [Plan]
// lists for each port which impairments, events and timed faults apply. A tier
// executes the plan and returns an [Observation]. [Judge] compares it with the
// scenario's expectations, and [Observation.FillResult] writes the result.
//
// The tiers are packages: lab/simlab runs a scenario in simulation, lab/nslab in
// network namespaces. This package imports neither, and starts no process,
// goroutine or timer. A Plan does not change after [NewPlan].
package lab
