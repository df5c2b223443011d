//go:build ibverbs && linux && cgo

package ibv

// #include "shim.h"
import "C"

import (
	"errors"
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// waiter waits for events on a file descriptor of the library, until stop is called. It does not
// own the descriptor.
type waiter struct {
	fd     C.int
	stopFD C.int // an eventfd that stop makes readable

	mu      sync.Mutex
	changed sync.Cond // waiting has decreased
	waiting int       // running calls of wait
	stopped bool
}

// newWaiter makes fd non-blocking and returns a waiter for it.
func newWaiter(fd C.int) (*waiter, error) {
	if ret, errno := C.shim_nonblocking(fd); ret != 0 {
		return nil, cause(errno)
	}
	stopFD, errno := C.eventfd(0, C.EFD_CLOEXEC|C.EFD_NONBLOCK)
	if stopFD < 0 {
		return nil, cause(errno)
	}
	w := &waiter{fd: fd, stopFD: stopFD}
	w.changed.L = &w.mu
	return w, nil
}

// wait calls take, which reads an event without blocking, whenever the descriptor is readable,
// until take returns true or an error. It returns ErrTimeout, or ErrClosed after stop.
func (w *waiter) wait(timeout time.Duration, take func() (bool, error)) error {
	if !w.enter() {
		return verbs.ErrClosed
	}
	defer w.leave()
	began := time.Now()
	for {
		// An event is read even if the timeout is 0.
		if taken, err := take(); taken || err != nil {
			return err
		}
		ms := C.int(-1)
		if timeout >= 0 {
			left := timeout - time.Since(began)
			if left <= 0 {
				return verbs.ErrTimeout
			}
			ms = C.int(min((left+time.Millisecond-1)/time.Millisecond, math.MaxInt32))
		}
		switch ready, errno := C.shim_wait(w.fd, w.stopFD, ms); {
		case ready == 2:
			return verbs.ErrClosed
		case ready < 0 && !errors.Is(errno, syscall.EINTR):
			return cause(errno)
		}
	}
}

// enter counts a call of wait, unless stop was called; leave ends it.
func (w *waiter) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return false
	}
	w.waiting++
	return true
}

func (w *waiter) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting--
	w.changed.Broadcast()
}

// stop ends all calls of wait, and returns when the last has ended; the descriptor is then unused.
// The caller must not hold a lock that take needs.
func (w *waiter) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	w.stopped = true
	C.shim_wake(w.stopFD)
	for w.waiting > 0 {
		w.changed.Wait()
	}
	C.close(w.stopFD)
}
