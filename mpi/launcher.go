package mpi

import (
	"errors"
	"fmt"
	"os"

	"github.com/fabrictest/fabrictest/mpi/transport"
)

// Launcher runs the ranks of this process: it creates an environment for each rank, calls
// rank with it, and returns the resulting error. Main does not print an error whose method
// Reported returns true, and exits with the code of an error with a method ExitCode.
type Launcher func(rank func(e *transport.Env, o Options) error) error

var launcher struct {
	name string
	run  Launcher
}

// RegisterLauncher sets the launcher of the program; there can be only one. A launcher
// package calls it in init, and the program imports that package for this effect.
func RegisterLauncher(name string, run Launcher) {
	if launcher.run != nil {
		panic(fmt.Sprintf("mpi: launcher %s cannot be registered, %s is already: import only one", name, launcher.name))
	}
	launcher.name, launcher.run = name, run
}

// Main runs f as a rank and exits the process: with code 0, with 1 after an error, or with
// the code that the launcher's error has.
func Main(f func(*World) error) { os.Exit(start(f)) }

// start runs f with the registered launcher, and returns the exit code. It prints the launcher's
// error, unless the launcher has reported it already.
func start(f func(*World) error) int {
	if launcher.run == nil {
		fmt.Fprintln(os.Stderr, `mpi: no launcher is registered: import _ "github.com/fabrictest/fabrictest/lab/mpihost"`)
		return 1
	}
	err := launcher.run(func(e *transport.Env, o Options) error { return Run(e, o, f) })
	if err == nil {
		return 0
	}
	if r, ok := errors.AsType[reportedError](err); !ok || !r.Reported() {
		fmt.Fprintln(os.Stderr, err)
	}
	if c, ok := errors.AsType[exitCoder](err); ok {
		return c.ExitCode()
	}
	return 1
}

// reportedError is an error that may have been printed already; exitCoder is one with an exit code.
type (
	reportedError interface {
		error
		Reported() bool
	}
	exitCoder interface {
		error
		ExitCode() int
	}
)
