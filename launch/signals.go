package launch

import (
	"os"
	"os/signal"
	"syscall"
)

// StopSignals are the signals on which a command stops its ranks early and still writes
// its report: SIGINT, SIGTERM and, unless it is ignored as under nohup(1), SIGHUP.
func StopSignals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}
