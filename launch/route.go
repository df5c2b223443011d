package launch

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/launch/internal/control"
)

// forward passes a message on to another rank. While that one's queue is full,
// this rank's channel is not read, so it will have to wait in turn.
func (m *member) forward(f control.Frame) error {
	if f.Num >= uint64(len(m.g.members)) {
		return fmt.Errorf("%w: message to rank %d of %d", control.ErrProtocol, f.Num, len(m.g.members))
	}
	// One that has ended takes nothing more, and the sender has been told or will be.
	_ = m.g.members[f.Num].outbox.Put(control.Frame{Kind: control.Data, Num: uint64(m.spec.Rank), Body: f.Body})
	return nil
}

// enterBarrier counts a rank that has come to barrier n.
func (m *member) enterBarrier(n uint64) error {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	if n != m.g.released+1 || m.entered == n {
		return fmt.Errorf("%w: came to barrier %d, after barrier %d of which %d are complete",
			control.ErrProtocol, n, m.entered, m.g.released)
	}
	m.entered = n
	m.g.release()
	return nil
}

// release completes the barrier if every rank that is left has come to it. The
// caller holds the lock.
func (g *Group) release() {
	left := 0
	for _, m := range g.members {
		if m.gone {
			continue
		}
		if m.entered <= g.released {
			return
		}
		left++
	}
	if left == 0 {
		return
	}
	g.released++
	for _, m := range g.members {
		if !m.gone {
			_ = m.outbox.PutUnbounded(control.Frame{Kind: control.BarrierDone, Num: g.released})
		}
	}
}

// leave takes a rank out of the conversation: all that it sent has been passed
// on. Its own outbox stays open until its farewell, or its end.
func (m *member) leave() {
	g := m.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if !m.bye {
		m.outbox.Close()
	}
	if m.gone {
		return
	}
	m.gone, m.leftAt = true, time.Now()
	for id, ch := range m.replies {
		close(ch)
		delete(m.replies, id)
	}
	for _, other := range g.members {
		if other != m {
			_ = other.outbox.PutUnbounded(control.Frame{Kind: control.RankEnded, Num: uint64(m.spec.Rank)})
		}
	}
	g.release()
}
