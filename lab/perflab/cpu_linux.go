package perflab

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// bindProcess binds all threads of this process to one CPU, counted from 0, and sets
// GOMAXPROCS to 1. New threads inherit the affinity.
func bindProcess(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return err
	}
	// Twice, to find threads that were started during the first pass.
	for range 2 {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			if err := unix.SchedSetaffinity(tid, &set); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	runtime.GOMAXPROCS(1)
	return nil
}

// twoCPUs returns two CPUs, counted from 1, that this process may use and that are
// not threads of one core; zeros if there are none.
func twoCPUs() (a, b int) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return 0, 0
	}
	first := -1
	for cpu := range len(set) * 64 {
		switch {
		case !set.IsSet(cpu):
		case first < 0:
			first = cpu
		case !siblings(first, cpu):
			return first + 1, cpu + 1
		}
	}
	return 0, 0
}

// siblings reports whether two CPUs are threads of one core.
func siblings(a, b int) bool {
	list, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", a))
	if err != nil {
		return false
	}
	for part := range strings.SplitSeq(strings.TrimSpace(string(list)), ",") {
		low, high, ok := strings.Cut(part, "-")
		if !ok {
			high = low
		}
		from, err1 := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err1 == nil && err2 == nil && from <= b && b <= to {
			return true
		}
	}
	return false
}
