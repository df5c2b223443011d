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

// pinnedMain binds this process to a CPU and executes a program in its place. args are
// the number of the CPU, the program and its arguments. It returns only errors.
func pinnedMain(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("%q: want a CPU and a program", args)
	}
	cpu, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	path, err := exec.LookPath(args[1])
	if err != nil {
		return err
	}
	runtime.LockOSThread() // exec keeps the affinity of this thread
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("bind to CPU %d: %w", cpu, err)
	}
	return fmt.Errorf("%s: %w", path, syscall.Exec(path, args[1:], os.Environ()))
}
