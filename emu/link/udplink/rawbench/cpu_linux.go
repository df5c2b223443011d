package rawbench

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// onCPU runs f on a thread that is bound to a processor, counted from 1; on any if cpu is
// 0.
func onCPU(cpu int, f func() error) error {
	if cpu == 0 {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the bound thread ends with the goroutine
		var set unix.CPUSet
		set.Set(cpu - 1)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			done <- fmt.Errorf("bind to processor %d: %w", cpu-1, err)
			return
		}
		done <- f()
	}()
	return <-done
}
