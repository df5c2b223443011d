package process

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// UsableCPUs returns the CPUs that this process may use, counted from 0.
func UsableCPUs() (all []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	for cpu := range len(set) * 64 { // a CPUSet is an array of 64-bit words
		if set.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	return all, nil
}

// BindToCPU binds all threads of this process to one CPU, counted from 0, and sets GOMAXPROCS to 1.
// Later threads inherit the affinity of the thread that creates them.
func BindToCPU(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// A thread that is not bound yet may create others: repeat until no new thread is found.
	for bound := map[string]bool{}; ; {
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
			if err := unix.SchedSetaffinity(tid, &set); err != nil && !errors.Is(err, unix.ESRCH) { // ESRCH: it has exited
				return fmt.Errorf("bind to CPU %d: %w", cpu, os.NewSyscallError("sched_setaffinity", err))
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
