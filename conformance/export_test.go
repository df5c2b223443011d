package conformance

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/process"
)

// SetOthersShare makes other processes use a share of the CPU time until the test ends.
func SetOthersShare(t *testing.T, share float64) {
	var at time.Duration
	sampleCPU = func() (process.CPUSample, bool) {
		at += time.Second
		return process.CPUSample{At: time.Unix(0, 0).Add(at), CPUs: 1, Busy: time.Duration(share * float64(at)), All: at}, true
	}
	t.Cleanup(func() { sampleCPU = process.SampleCPU })
}
