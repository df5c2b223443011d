package netns

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// onOwnThread runs fn on a thread that dies with it: the goroutine exits while
// still locked, so the runtime cannot hand a moved thread to anyone else.
//
// It is never the process's first thread, which cannot die alone: /proc/self
// speaks of that one, and would speak of the wrong namespace from then on.
func onOwnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// Whoever runs while this goroutine sits on the first thread runs on
			// another.
			done <- onOwnThread(fn)
			runtime.UnlockOSThread()
			return
		}
		done <- fn()
	}()
	return <-done
}

// thread is an operating system thread that runs what it is given until it is
// ended. What it has forked with a parent death signal dies with it, not before.
type thread struct {
	work chan func()
	end  sync.Once
}

// newThread returns when setup has run on the new thread; with an error if it
// gave one.
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

// run runs fn on the thread and returns what it gave. Calls are served one by
// one. It must not be called after stop.
func (t *thread) run(fn func() error) error {
	done := make(chan error, 1)
	t.work <- func() { done <- fn() }
	return <-done
}

func (t *thread) stop() { t.end.Do(func() { close(t.work) }) }
