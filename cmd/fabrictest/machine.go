package main

import (
	"runtime"

	"github.com/fabrictest/fabrictest/report"
)

// thisMachine says where a run takes place.
func thisMachine() report.Machine {
	return report.Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Kernel: kernelRelease(), CPUs: runtime.NumCPU()}
}
