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

// waiter lets goroutines wait for events on a file descriptor of the library's, and sends
// them away when what it belongs to is closed. It does not own the descriptor.
type waiter struct {
	fd, alarm C.int // alarm can be read from the moment of stop on
	mu        sync.Mutex
	left      sync.Cond
	inside    int
	stopped   bool
}

func newWaiter(fd C.int) (*waiter, error) {
	if ret, errno := C.shim_nonblocking(fd); ret != 0 {
		return nil, cause(errno)
	}
	alarm, errno := C.eventfd(0, C.EFD_CLOEXEC|C.EFD_NONBLOCK)
	if alarm < 0 {
		return nil, cause(errno)
	}
	w := &waiter{fd: fd, alarm: alarm}
	w.left.L = &w.mu
	return w, nil
}

// wait calls take whenever the descriptor may have something, until it says that it has
// taken it. It returns ErrTimeout or ErrClosed if that does not happen.
func (w *waiter) wait(timeout time.Duration, take func() (bool, error)) error {
	if !w.enter() {
		return verbs.ErrClosed
	}
	defer w.leave()
	began := time.Now()
	for {
		// What is there is taken also by who has no time at all.
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
		switch ready, errno := C.shim_wait(w.fd, w.alarm, ms); {
		case ready == 2:
			return verbs.ErrClosed
		case ready < 0 && !errors.Is(errno, syscall.EINTR):
			return cause(errno)
		}
	}
}

func (w *waiter) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return false
	}
	w.inside++
	return true
}

func (w *waiter) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside--
	w.left.Broadcast()
}

// stop ends all waits, and returns when the last has ended. From then on nobody uses the
// descriptor. Whoever calls must hold no lock that take needs.
func (w *waiter) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	w.stopped = true
	C.shim_wake(w.alarm)
	for w.inside > 0 {
		w.left.Wait()
	}
	C.close(w.alarm)
}
