//go:build !linux

package launch

import "syscall"

// sysProcAttr lacks Pdeathsig: ranks exit when their channel closes, and the guard
// kills the others.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// onMainThread matters only where threads have namespaces.
func onMainThread() bool { return false }

// waitWithoutReaping is not supported here.
func waitWithoutReaping(int) bool { return false }

// maxrssUnit is the unit of Rusage.Maxrss in bytes.
const maxrssUnit = 1

// readPeakRSS is not supported here; Rusage is used instead.
func readPeakRSS(int) (int64, bool) { return 0, false }

// isGoProcess is not supported here; the hello of a rank tells.
func isGoProcess(int) bool { return false }
