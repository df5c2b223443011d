package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// boundMain becomes another program, which keeps to one processor: its number, the
// program, and its arguments.
func boundMain(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("%q: a processor and a program are needed", args)
	}
	cpu, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	path, err := exec.LookPath(args[1])
	if err != nil {
		return err
	}
	runtime.LockOSThread() // the thread that calls exec is the only one that is left
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("keep to processor %d: %w", cpu, err)
	}
	return fmt.Errorf("%s: %w", path, syscall.Exec(path, args[1:], os.Environ()))
}
