package report

import (
	"runtime"
	"runtime/debug"
)

// ThisMachine describes the machine that runs the program.
func ThisMachine() Machine {
	return Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Kernel: kernelRelease(), CPUs: runtime.NumCPU()}
}

// ToolVersion returns the version and the commit that the program was built from.
func ToolVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown) commit unknown"
	}
	version, commit := info.Main.Version, "unknown"
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = s.Value
		}
	}
	return version + " commit " + commit
}
