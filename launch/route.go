package launch

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/control"
)

// forward sends a message to another rank. While the receiver's send queue is full,
// it blocks, and so the sender's channel is not read (backpressure).
func (m *member) forward(f control.Frame) error {
	if f.Num >= uint64(len(m.g.members)) {
		return fmt.Errorf("%w: message to rank %d of %d", control.ErrProtocol, f.Num, len(m.g.members))
	}
	// Queue fails if the receiver has ended; the sender gets a kindRankEnded frame.
	_ = m.g.members[f.Num].conn.Queue(control.Frame{Kind: kindData, Num: uint64(m.spec.Rank), Body: f.Body})
	return nil
}

// enterBarrier records that the rank has entered barrier n.
func (m *member) enterBarrier(n uint64) error {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	if n != m.g.barriersDone+1 || m.barriersEntered == n {
		return fmt.Errorf("%w: entered barrier %d after barrier %d; barrier %d was the last to complete",
			control.ErrProtocol, n, m.barriersEntered, m.g.barriersDone)
	}
	m.barriersEntered = n
	m.g.releaseBarrier()
	return nil
}

// releaseBarrier completes the barrier if all connected ranks have entered it. The
// caller holds the lock.
func (g *Group) releaseBarrier() {
	entered := 0
	for _, m := range g.members {
		if m.disconnected {
			continue
		}
		if m.barriersEntered <= g.barriersDone {
			return
		}
		entered++
	}
	if entered == 0 {
		return
	}
	g.barriersDone++
	for _, m := range g.members {
		if !m.disconnected {
			_ = m.conn.QueueNow(control.Frame{Kind: kindBarrierDone, Num: g.barriersDone})
		}
	}
}

// disconnect tells the other ranks that this rank has ended, after all its messages
// have been forwarded. After a bye, its send queue stays open for the acknowledgement.
func (m *member) disconnect() {
	g := m.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if !m.byeReceived {
		m.conn.CloseQueue()
	}
	if m.disconnected {
		return
	}
	m.disconnected, m.heartbeat.disconnectedAt = true, time.Now()
	m.calls.Close()
	for _, other := range g.members {
		if other != m {
			_ = other.conn.QueueNow(control.Frame{Kind: kindRankEnded, Num: uint64(m.spec.Rank)})
		}
	}
	g.releaseBarrier()
}
