package mpihost

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// CPUs are the processors that this process may use.
func CPUs() (all []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	return all, nil
}

// bind keeps this process to one processor, with all its threads and those to come: a
// thread inherits where it may run from the one that starts it.
func bind(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for bound := map[string]bool{}; ; { // until no thread is new: another may start one meanwhile
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		before := len(bound)
		for _, t := range threads {
			tid, err := strconv.Atoi(t.Name())
			if err != nil || bound[t.Name()] {
				continue
			}
			if err := unix.SchedSetaffinity(tid, &set); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("keep to processor %d: %w", cpu, os.NewSyscallError("sched_setaffinity", err))
			}
			bound[t.Name()] = true
		}
		if len(bound) == before {
			break
		}
	}
	runtime.GOMAXPROCS(1)
	return nil
}
