package rawbench

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// onCPU runs f on the processor that cpu names, counted from 1, or on any if it
// is 0. The thread is f's own and dies with it.
func onCPU(cpu int, f func() error) error {
	if cpu == 0 {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: nobody else wants a thread that is bound
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
