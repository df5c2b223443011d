// Package interrupt lists the signals on which a command stops early and still writes
// its report.
package interrupt

import (
	"os"
	"os/signal"
	"syscall"
)

// Signals returns SIGINT, SIGTERM and, unless it is ignored as under nohup(1), SIGHUP.
func Signals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}
