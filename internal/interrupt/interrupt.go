// Package interrupt names the signals that ask a process to end early, with a report of
// what there is.
package interrupt

import (
	"os"
	"os/signal"
	"syscall"
)

// Signals are Ctrl-C, SIGTERM, and the SIGHUP of a terminal that is closed, unless the
// process was started to ignore that one, as nohup(1) does.
func Signals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}
