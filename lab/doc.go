// Package lab runs scenarios, and holds what every way of running them shares:
// a [Plan] says what a scenario means for each port of its fabric and when, the
// judge ([Judge]) holds what was [Observed] against what the scenario expects,
// and [Observed.Result] puts it all in the form that is kept and shown.
//
// The ways of running are packages below it: simlab, a simulated world, and
// nslab, network namespaces with a process a host. Neither is known here, and
// nothing here opens, starts or waits for anything. A Plan is made once and then
// only read; all else are values of their callers.
package lab
