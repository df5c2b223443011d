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
// the number of the CPU or anyCPU, the program and its arguments. It returns only errors.
func pinnedMain(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("%q: want a CPU and a program", args)
	}
	cpu, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	if cpu == anyCPU {
		return execute(args[1:])
	}
	runtime.LockOSThread() // exec keeps the affinity of this thread
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("bind to CPU %d: %w", cpu, err)
	}
	return execute(args[1:])
}

// execInNetNS enters the network namespace with a path, and executes a command in place of this
// process. It returns only errors.
func execInNetNS(path string, command []string) error {
	ns, err := os.Open(path)
	if err != nil {
		return err
	}
	runtime.LockOSThread() // exec keeps the namespace of this thread
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace %s: %w", path, err)
	}
	return execute(command)
}

// execute executes a command in place of this process. It returns only errors.
func execute(command []string) error {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", path, syscall.Exec(path, command, os.Environ()))
}
