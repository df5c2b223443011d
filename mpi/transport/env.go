package transport

import (
	"errors"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Env is the environment of one rank. The launcher provides it, for a simulated world or for
// a process in a network namespace; the runtime does not know which.
type Env struct {
	Rank, Size int
	// Nodes is the host of each rank. Hosts are numbered from 0.
	Nodes []int
	Seed  uint64
	Proc  verbs.Proc
	// NICs are the NICs of the rank's host, one per rail. Other ranks of the host may
	// share them.
	NICs    []NIC
	Control Control
	// Shared is memory shared by the ranks of a host; nil if there is none.
	Shared SharedMemory
	// Go runs f as a concurrent task with its own Proc. The rank does not wait for it at
	// its end.
	Go func(what string, f func(verbs.Proc))
	// Concurrent says that ranks and devices run in parallel, as in real time. Otherwise
	// one task runs at a time, until it waits.
	Concurrent bool
	// Costs is the CPU time of memory operations in virtual time; nil in real time. Spend
	// lets time pass for the task that calls it.
	Costs *verbs.Costs
	Spend func(time.Duration)
}

// NIC is an opened device.
type NIC struct {
	Device   verbs.Context
	Addr     netip.Addr
	GIDIndex uint8
}

// ErrGone is returned by Control for a rank that has exited.
var ErrGone = errors.New("the rank has ended")

// Control is the out-of-band channel between ranks. Messages between two ranks are
// reliable and ordered. It is safe for concurrent use, but only one goroutine may receive.
type Control interface {
	Send(to int, msg []byte) error
	// Recv returns the next message from a rank. After timeout (never if negative) it
	// returns verbs.ErrTimeout; if the rank has exited and no message is left, ErrGone.
	Recv(from int, timeout time.Duration) ([]byte, error)
	// Barrier waits until every rank that has not exited has called it.
	Barrier(timeout time.Duration) error
	// Gone reports whether a rank has exited, for whatever reason.
	Gone(rank int) bool
	// Abort terminates all ranks.
	Abort(code int, why string)
}

// SharedMemory provides memory to the ranks of a host.
type SharedMemory interface {
	// Segment returns the segment with a name. The first caller creates it, zeroed; all
	// callers must pass the same size.
	Segment(name string, size int) ([]byte, error)
}
