package mpi

import (
	"errors"
	"fmt"
	"os"

	"github.com/fabrictest/fabrictest/mpi/env"
)

// Host starts the ranks of this process, one or all of them: it makes an environment
// for each and calls rank with it, and returns what it or they ended with. An error
// that has a method Reported, which is true, is not told again; one with a method
// ExitCode says what the process ends with.
type Launcher func(rank func(e *env.Env, o Options) error) error

var launcher struct {
	name string
	run  Launcher
}

// RegisterHost says who starts ranks; a program has one. The package that does so is
// imported by the program for that alone, and calls it in its init.
func RegisterLauncher(name string, h Launcher) {
	if launcher.run != nil {
		panic(fmt.Sprintf("mpi: %s is to start ranks, and %s is already: import one of them", name, launcher.name))
	}
	launcher.name, launcher.run = name, h
}

// Main runs f as a rank. The process ends when it returns: with code 0, or 1 if it
// failed, unless whoever starts ranks has another for that.
func Main(f func(*World) error) { os.Exit(start(f)) }

// start runs f by whoever starts ranks, and returns what the process ends with.
func start(f func(*World) error) int {
	if launcher.run == nil {
		fmt.Fprintln(os.Stderr, `mpi: nothing in this program starts ranks: add to its imports _ "github.com/fabrictest/fabrictest/lab/mpihost/join"`)
		return 1
	}
	err := launcher.run(func(e *env.Env, o Options) error { return Run(e, o, f) })
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

// reported is an error that the user has been told already; coded, one that the
// process ends with a certain code for.
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
