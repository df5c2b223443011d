// Package env is what a rank of the runtime is given by whoever starts it: its place
// among the others, its NICs, time, and the few things that it needs before it can
// use the fabric. A simulated world and a process in a namespace give it alike, and
// the runtime does not know which of them it is in.
package env

import (
	"errors"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Env is a rank's.
type Env struct {
	Rank, Size int
	// Nodes says for each rank which host it is on. Hosts are numbered from 0.
	Nodes []int
	Seed  uint64
	Proc  verbs.Proc
	// NICs are those of the rank's host, one a rail. Other ranks of the host may
	// have the same.
	NICs    []NIC
	Control Control
	// Shared is memory that the ranks of a host have in common; nil where there is
	// none.
	Shared SharedMemory
	// Go runs f beside the rank, with a Proc of its own: a call that waits keeps
	// nobody else from going on. A rank that ends does not wait for it.
	Go func(what string, f func(verbs.Proc))
	// Concurrent says that ranks and devices run at the same time as each other, as
	// they do in real time. Where it is false, only who waits lets others go on.
	Concurrent bool
	// Costs is the time that work on memory takes, for a world in which it would take
	// none; nil where it takes what it takes.
	Costs *Costs
}

// Costs is the time that a processor needs for memory.
type Costs struct {
	// Copy is that for n bytes; Register and Deregister, for a region of n.
	Copy, Register, Deregister func(n int) time.Duration
	// LookUp is that for one look into a table of buffers.
	LookUp time.Duration
	// Spend has time pass for whoever calls.
	Spend func(time.Duration)
}

// NIC is an opened device.
type NIC struct {
	Device   verbs.Context
	Addr     netip.Addr
	GIDIndex uint8
}

// ErrGone is what Control returns of a rank that has ended.
var ErrGone = errors.New("the rank has ended")

// Control is the way between ranks before there is any other. Messages between two
// ranks arrive in order and are never lost. It may be used from several goroutines,
// though only one at a time may receive.
type Control interface {
	Send(to int, msg []byte) error
	// Recv returns the next message from a rank. It waits for timeout at most
	// (without end if negative) and then returns verbs.ErrTimeout; ErrGone if the
	// rank has ended and no message of its is left.
	Recv(from int, timeout time.Duration) ([]byte, error)
	// Barrier returns when every rank that has not ended has called it.
	Barrier(timeout time.Duration) error
	// Gone reports whether a rank has ended, in whatever way.
	Gone(rank int) bool
	// Abort ends all ranks, of which this one says why.
	Abort(code int, why string)
}

// Shared makes memory for the ranks of a host.
type SharedMemory interface {
	// Segment returns memory by a name. Who asks first makes it, of zeros; the others
	// get the same and must ask for as much.
	Segment(name string, size int) ([]byte, error)
}
