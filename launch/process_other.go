//go:build !linux

package launch

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysProcAttr lacks Pdeathsig: ranks exit when their channel closes; the guard kills the others.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// onMainThread returns false: the answer matters only where threads have namespaces.
func onMainThread() bool { return false }

// replaceFD makes descriptor fd a duplicate of from.
func replaceFD(from, fd int) error { return os.NewSyscallError("dup2", unix.Dup2(from, fd)) }

// waitWithoutReaping returns false: it is not supported here.
func waitWithoutReaping(int) bool { return false }

// maxrssUnit is the unit of Rusage.Maxrss in bytes.
const maxrssUnit = 1

// readPeakRSS is not supported here; Rusage is used instead.
func readPeakRSS(int) (int64, bool) { return 0, false }

// isGoProcess returns false: here only a rank's hello tells that it is a Go program.
func isGoProcess(int) bool { return false }

// procState returns little more than the PID: there is no /proc here.
func procState(pid int) string {
	return fmt.Sprintf("process %d runs; this system shows no more of it", pid)
}

func executablePath() (string, error) { return os.Executable() }

// killStrays is not supported here: processes that left the process group of their
// rank are not found.
func killStrays(string, int) {}
