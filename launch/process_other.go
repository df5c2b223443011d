//go:build !linux

package launch

import "syscall"

// processAttr has no Pdeathsig here: ranks end with their channel, and the guard
// sees to the rest.
func processAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// onMainThread matters only where threads have namespaces.
func onMainThread() bool { return false }

// waitExited cannot wait without reaping here.
func waitExited(int) bool { return false }

// rssUnit is that of Rusage.Maxrss, in bytes.
const rssUnit = 1

// peakRSS has no source here but Rusage.
func peakRSS(int) (int64, bool) { return 0, false }

// isGo cannot tell; ranks that joined have said it.
func isGo(int) bool { return false }
