// Package traffic has the parts from which programs over verbs are built: queue pairs are
// connected, receives posted again and again, requests accounted for, messages filled and
// compared, and latencies counted. Packages scenarios/workload, scenarios/random, perf and
// conformance/interop are such programs.
//
// It opens no device, starts no goroutine and reads no clock besides RealTime. Therefore it
// serves in a simulated world and in real time. A part belongs to the goroutine or program
// that uses it.
package traffic
