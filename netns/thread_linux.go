package netns

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// onOwnThread runs fn on a thread that ends with it: the goroutine exits while
// locked, so the runtime does not reuse a thread in another namespace.
//
// It never uses the main thread, which cannot end alone and which /proc/self refers to.
func onOwnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// While this goroutine holds the main thread, the call runs on another.
			done <- onOwnThread(fn)
			runtime.UnlockOSThread()
			return
		}
		done <- fn()
	}()
	return <-done
}

// thread is an OS thread that runs functions until stop. Processes that it
// forks with a parent death signal are killed when it ends.
type thread struct {
	work chan func()
	end  sync.Once
}

// newThread starts a thread, on which setup runs first and then the functions of [thread.run]. It
// returns the error of setup.
func newThread(setup func() error) (*thread, error) {
	t := &thread{work: make(chan func())}
	ready := make(chan error)
	go onOwnThread(func() error { // returned through ready
		err := setup()
		ready <- err
		if err != nil {
			return err
		}
		for fn := range t.work {
			fn()
		}
		return nil
	})
	if err := <-ready; err != nil {
		return nil, err
	}
	return t, nil
}

// run runs fn on the thread and returns its result. Calls are serialized; none may follow stop.
func (t *thread) run(fn func() error) error {
	done := make(chan error, 1)
	t.work <- func() { done <- fn() }
	return <-done
}

func (t *thread) stop() { t.end.Do(func() { close(t.work) }) }
