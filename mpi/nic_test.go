package mpi_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

func (n *nic) Now() time.Duration {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	return n.f.clock()
}

func (n *nic) MaxData() int { return 4096 }

func (n *nic) CanSend(int, int) bool {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	return !n.f.lacksCredits || n.f.rng.IntN(3) > 0
}

var errUnreachable = errors.New("unreachable")

func (n *nic) Send(peer int, h *wire.Header, data []byte, owner any) {
	f := n.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if n.lost[peer] != nil {
		if owner != nil {
			n.begin(peer, owner, carrier.OpSend)(errUnreachable)
		}
		return
	}
	if len(data) > 0 && owner == nil {
		f.t.Errorf("rank %d: a message with data and without an owner", n.rank)
	}
	n.sendLocked(peer, *h, data, owner)
}

// sendLocked sends a message. It copies the data when the message leaves, not before.
func (n *nic) sendLocked(peer int, h wire.Header, data []byte, owner any) {
	f := n.f
	if f.onSend != nil {
		f.onSend(n.rank, peer)
	}
	leaves := max(f.clock()+f.delay()/2, n.lastTo[peer])
	arrives := leaves + f.delay()
	n.lastTo[peer] = arrives
	n.inFlight++
	end := func(error) {}
	if owner != nil {
		end = n.begin(peer, owner, carrier.OpSend)
	}
	var left []byte
	f.at(leaves, func() {
		left = append(left, data...)
		end(nil)
	})
	f.at(arrives, func() {
		n.inFlight--
		if to := f.nics[peer]; to.lost[n.rank] == nil {
			to.deliver(func(up mpi.Upper) {
				if err := up.Arrived(n.rank, &h, left); err != nil {
					f.t.Errorf("rank %d: %v", peer, err)
				}
				for i := range left { // the data is not valid any more
					left[i] = 0xee
				}
			})
		}
	})
}

// maxMulticast is not the eager limit of tests.
const maxMulticast = 50

func (n *nic) MaxMulticast() int                { return maxMulticast }
func (n *nic) JoinGroup(id uint64, ranks []int) { n.groups[id] = ranks }
func (n *nic) LeaveGroup(id uint64)             { delete(n.groups, id) }
func (n *nic) ExpectMulticast(uint64, int)      {}
func (n *nic) CanMulticast(uint64) bool         { return n.CanSend(0, 0) }

func (n *nic) Multicast(id uint64, h *wire.Header, data []byte) {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	for _, peer := range n.groups[id] {
		if n.lost[peer] == nil {
			n.sendLocked(peer, *h, bytes.Clone(data), nil)
		}
	}
}

func (n *nic) Register(buf []byte) (wire.Region, error) {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	n.nextKey++
	r := &region{n, buf, n.nextKey}
	n.regions[r.key] = r
	return r, nil
}

func (n *nic) Source(buf []byte) (wire.Region, error) { return n.Register(buf) }
func (n *nic) Sink(buf []byte) (wire.Region, error)   { return n.Register(buf) }

func (n *nic) Release(r wire.Region) {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	delete(n.regions, r.(*region).key)
}

// remoteOp executes an operation on a peer's memory after a delay.
func (n *nic) remoteOp(peer int, owner any, what carrier.Op, do func()) {
	f := n.f
	f.mu.Lock()
	defer f.mu.Unlock()
	end := n.begin(peer, owner, what)
	if n.lost[peer] != nil {
		end(errUnreachable)
		return
	}
	f.at(f.clock()+f.delay(), func() {
		if n.lost[peer] != nil || n.dead || f.nics[peer].dead {
			return
		}
		do()
		f.at(f.clock()+f.delay(), func() { end(nil) })
	})
}

func (n *nic) Read(peer int, t wire.Transfer, owner any) {
	n.remoteOp(peer, owner, carrier.OpRead, func() {
		copy(t.Local.(*region).buf[:t.N], n.f.nics[peer].remoteMemory(t.Remote, t.N))
	})
}

func (n *nic) Write(peer int, t wire.Transfer, owner any) {
	var next wire.Header
	if t.Then != nil {
		next = *t.Then
	}
	n.remoteOp(peer, owner, carrier.OpWrite, func() {
		copy(n.f.nics[peer].remoteMemory(t.Remote, t.N), t.Local.(*region).buf[:t.N])
		if next.Kind != 0 {
			n.sendLocked(peer, next, nil, nil)
		}
	})
}

func (n *nic) Atomics() bool { return n.f.atomics }

func (n *nic) atomic(peer int, at wire.Memory, owner any, change func(uint64) uint64) {
	if at.Addr%8 != 0 || !n.f.atomics {
		n.f.t.Errorf("rank %d: an atomic operation at %#x", n.rank, at.Addr)
	}
	n.remoteOp(peer, owner, carrier.OpAtomic, func() {
		word := n.f.nics[peer].remoteMemory(at, 8)
		old := binary.LittleEndian.Uint64(word)
		binary.LittleEndian.PutUint64(word, change(old))
		n.deliver(func(mpi.Upper) { owner.(carrier.Fetcher).Fetched(old) })
	})
}

func (n *nic) FetchAdd(peer int, at wire.Memory, add uint64, owner any) {
	n.atomic(peer, at, owner, func(old uint64) uint64 { return old + add })
}

func (n *nic) CompareSwap(peer int, at wire.Memory, compare, swap uint64, owner any) {
	n.atomic(peer, at, owner, func(old uint64) uint64 {
		if old == compare {
			return swap
		}
		return old
	})
}

func (n *nic) Invalidate([]byte) error { return nil }

func (n *nic) Invalidated([]byte) bool { return true }
func (n *nic) HasPacket(int) bool      { return false }
func (n *nic) Flush() bool             { return false }
func (n *nic) PollFast(bool) bool      { return n.Progress() }

func (n *nic) Progress() (moved bool) {
	for {
		n.f.mu.Lock()
		if len(n.inbox) == 0 {
			n.f.mu.Unlock()
			return moved
		}
		next := n.inbox[0]
		n.inbox = n.inbox[1:]
		n.f.mu.Unlock()
		next(n.up)
		moved = moved || !n.lossOnly
		n.lossOnly = false
	}
}

func (n *nic) AllDelivered() bool {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	return n.inFlight == 0
}

func (n *nic) Close() error {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	n.ended = true
	return nil
}

func (n *nic) Stats() any { return nil }

// killedPanic is the panic that ends a killed task.
type killedPanic struct{}

func (n *nic) Wait(most time.Duration) {
	if n.f.concurrent {
		n.f.mu.Lock()
		dead, waiting := n.dead, len(n.inbox) > 0
		n.f.mu.Unlock()
		if dead {
			panic(killedPanic{})
		}
		if waiting {
			return
		}
		select {
		case <-n.delivered:
			n.wakeOther()
		case <-time.After(most):
		}
		return
	}
	p := n.f.current
	if len(n.inbox) == 0 {
		p.waitsForDelivery = true
		p.park(n.f.now + most)
		p.waitsForDelivery = false
	}
}

// wakeOther passes a wake-up on, because the program and the progress task may both wait.
func (n *nic) wakeOther() {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	if len(n.inbox) > 0 {
		n.wake()
	}
}
