package mpi_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

// kill kills a rank; the other ranks lose it.
func (f *fabric) kill(rank int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.killLocked(rank)
}

func (f *fabric) killLocked(rank int) {
	dead := f.nics[rank]
	if dead.dead {
		return
	}
	dead.dead = true
	f.announceLoss(rank)
	dead.wake()
}

// announceLoss reports the loss of a rank to all others.
func (f *fabric) announceLoss(rank int) {
	for _, n := range f.nics {
		if n.rank != rank {
			f.at(f.clock()+10*f.delay(), func() { n.losePeer(rank) })
		}
	}
	f.checkBarrier()
}

// losePeer fails the pending operations with a peer and reports its loss.
func (n *nic) losePeer(peer int) {
	if n.lost[peer] != nil {
		return
	}
	n.lost[peer] = errUnreachable
	for _, o := range slices.Clone(n.pending) {
		if o.peer == peer {
			n.deliver(func(up mpi.Upper) { up.Finished(o.owner, o.what, errUnreachable) })
		}
	}
	n.pending = slices.DeleteFunc(n.pending, func(o pendingOp) bool { return o.peer == peer })
	n.deliver(func(up mpi.Upper) {
		up.Lost(peer, errors.New("unreachable"))
		n.lossOnly = true
	})
}

// cut breaks the link between two ranks permanently.
func (f *fabric) cut(a, b int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nics[a].losePeer(b)
	f.nics[b].losePeer(a)
}

var (
	_ mpi.Carrier       = (*nic)(nil)
	_ verbs.Proc        = (*proc)(nil)
	_ transport.Control = (*control)(nil)
)

// control is the out-of-band channel of one rank.
type control struct {
	f    *fabric
	rank int
}

func (c *control) Send(int, []byte) error { return fmt.Errorf("not used") }

func (c *control) Recv(int, time.Duration) ([]byte, error) { return nil, fmt.Errorf("not used") }

func (c *control) Gone(rank int) bool {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	return c.f.nics[rank].dead || c.f.nics[rank].ended
}

func (c *control) Barrier(timeout time.Duration) error {
	f := c.f
	f.mu.Lock()
	round, until := f.round, f.clock()+timeout
	f.atBarrier++
	f.checkBarrier()
	defer f.mu.Unlock()
	for f.round == round {
		if f.clock() > until {
			return verbs.ErrTimeout
		}
		f.mu.Unlock()
		f.pause(c.rank)
		f.mu.Lock()
	}
	return nil
}

// checkBarrier completes the barrier if all running ranks have called it.
func (f *fabric) checkBarrier() {
	running := 0
	for _, n := range f.nics {
		if !n.dead && !n.ended {
			running++
		}
	}
	if f.atBarrier > 0 && f.atBarrier >= running {
		f.atBarrier = 0
		f.round++
	}
}

func (f *fabric) pause(rank int) {
	if f.concurrent {
		time.Sleep(50 * time.Microsecond)
		return
	}
	f.current.park(f.now + 10*time.Microsecond)
}

func (c *control) Abort(code int, why string) {
	f := c.f
	f.mu.Lock()
	f.aborted = fmt.Sprintf("rank %d, code %d: %s", c.rank, code, why)
	for i := range f.nics {
		f.killLocked(i)
	}
	f.mu.Unlock()
}
