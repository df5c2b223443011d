package netns

import (
	"errors"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/must"
)

func TestOwnThreadIsNeverTheMainThread(t *testing.T) {
	results := make(chan error)
	const many = 64
	// All at once, so that every thread is in use.
	var all sync.WaitGroup
	all.Add(many)
	for range many {
		go func() {
			results <- onOwnThread(func() error {
				all.Done()
				all.Wait()
				if unix.Gettid() == unix.Getpid() {
					return errors.New("it ran on the first thread of the process")
				}
				return nil
			})
		}()
	}
	for range many {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

func TestThreadRunsUntilStop(t *testing.T) {
	var first, last int
	th := must.Get(newThread(func() error { first = unix.Gettid(); return nil }))(t)
	for range 10 {
		if err := th.run(func() error { last = unix.Gettid(); return unix.EAGAIN }); !errors.Is(err, unix.EAGAIN) {
			t.Fatalf("run returned %v", err)
		}
		if first != last {
			t.Fatalf("work ran on thread %d, and then on %d", first, last)
		}
	}
	th.stop()
	th.stop() // again
	if _, err := newThread(func() error { return unix.EPERM }); !errors.Is(err, unix.EPERM) {
		t.Errorf("a thread that cannot be set up: %v", err)
	}
}
