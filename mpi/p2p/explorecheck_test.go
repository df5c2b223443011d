package p2p

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/wire"
)

// pending returns the queued RTRs.
func (q *rtrQueue) pending() []wire.Header { return q.all[q.first:] }

// Check implements explore.Machine: every received RTR was used, dropped, or is queued, and no
// request is complete whose buffer the transport uses.
func (m *machine) Check() error {
	for rank, n := range m.w.ranks {
		for i := range n.transfers {
			if n.transfers[i].owner.Done() {
				return fmt.Errorf("rank %d has completed a request whose data is being transferred with rank %d", rank, n.transfers[i].peer)
			}
		}
		queued := 0
		for _, s := range n.e.senders {
			queued += s.rtrs.len()
		}
		if st := &n.e.Stats; len(n.e.lost) == 0 && st.RTRsReceived != st.RTRsUsed+st.RTRsDropped+uint64(queued) {
			return fmt.Errorf("rank %d: %d RTRs arrived, %d were used, %d dropped, and %d are queued", rank, st.RTRsReceived, st.RTRsUsed, st.RTRsDropped, queued)
		}
	}
	return nil
}

// placedAct is an act with its rank, index and request.
type placedAct struct {
	rank, i int
	a       act
	q       *Request
	matched *placedAct // the send or receive it matched
	mprobed bool       // the message was probed and not yet received
}

// matches reports whether a receive matches a message by the rules of MPI.
func (p *placedAct) matches(s *placedAct) bool {
	return s.a.peer == p.rank && (p.a.peer == Any || p.a.peer == s.rank) && (p.a.tag == Any || p.a.tag == s.a.tag)
}

// Finish implements explore.Finisher. It checks the final state of a run.
func (m *machine) Finish() error {
	for _, n := range m.w.ranks {
		m.sum.merge(&n.e.Stats)
	}
	var sent, recv []*placedAct
	for rank, acts := range m.prog {
		for i, a := range acts {
			q := m.reqs[rank][i]
			switch {
			case q == nil || rank == m.dead && a.kind != sendAct:
			case a.kind == sendAct && a.noMemory && q.Done() && errors.Is(q.Err, errNoMemory): // no message was sent
			case a.kind == sendAct:
				sent = append(sent, &placedAct{rank: rank, i: i, a: a, q: q})
			case a.kind == mrecvAct: // it matched at its probe
				recv = append(recv, &placedAct{rank: rank, i: a.target, a: acts[a.target], q: q})
			default:
				recv = append(recv, &placedAct{rank: rank, i: i, a: a, q: q})
			}
		}
	}
	unregistered, err := m.matchReceives(sent, recv)
	if err != nil {
		return err
	}
	held := m.mprobedMessages(sent)
	for _, p := range unregistered { // last: their contents are unknown
		if !p.matchTo(sent, func(*placedAct) bool { return true }) {
			return fmt.Errorf("rank %d, %d: the receive has matched a message that was not sent", p.rank, p.i)
		}
	}
	for _, s := range sent {
		if err := m.checkSend(s); err != nil {
			return err
		}
	}
	if err := m.checkOrder(sent, append(recv[:len(recv):len(recv)], held...)); err != nil {
		return err
	}
	return m.checkCleanup(sent, recv)
}

// matchReceives finds the message of each completed receive by its contents. It returns
// the receives whose registration failed, which have no contents.
func (m *machine) matchReceives(sent, recv []*placedAct) (unregistered []*placedAct, err error) {
	for _, p := range recv {
		q := p.q
		switch {
		case m.dead >= 0 && (p.a.peer == m.dead || p.a.peer == Any) && !q.Done():
			return nil, fmt.Errorf("rank %d, %d: the receive waits for a rank that has died", p.rank, p.i)
		case errors.Is(q.Err, errDead):
		case !q.Done() && q.state != statePosted:
			return nil, fmt.Errorf("rank %d, %d: the receive has matched but is not done", p.rank, p.i)
		case !q.Done() || q.Cancelled:
		case p.a.noMemory && errors.Is(q.Err, errNoMemory):
			unregistered = append(unregistered, p)
		default:
			n := min(q.Size, len(q.Buf))
			if !p.matchTo(sent, func(s *placedAct) bool { return bytes.Equal(q.Buf[:n], s.q.Buf[:n]) }) {
				return nil, fmt.Errorf("rank %d, %d: the receive has %d bytes of tag %d from %d that were not sent, or that another receive has: % x", p.rank, p.i, q.Size, q.MatchedTag, q.Source, q.Buf[:n])
			}
			if errors.Is(q.Err, ErrTruncated) != (q.Size > len(q.Buf)) || q.Err != nil && !errors.Is(q.Err, ErrTruncated) {
				return nil, fmt.Errorf("rank %d, %d: %d bytes for %d end with %v", p.rank, p.i, q.Size, len(q.Buf), q.Err)
			}
		}
	}
	return unregistered, nil
}

// matchTo matches a completed receive with the first send that fits, if there is one.
func (p *placedAct) matchTo(sent []*placedAct, same func(*placedAct) bool) bool {
	for _, s := range sent {
		if p.matches(s) && s.matched == nil && p.q.Source == s.rank && int(p.q.MatchedTag) == s.a.tag && p.q.Size == s.a.size && same(s) {
			p.matched, s.matched = s, p
			return true
		}
	}
	return false
}

// mprobedMessages finds the messages that were probed and not yet received.
func (m *machine) mprobedMessages(sent []*placedAct) (probes []*placedAct) {
	for rank, messages := range m.mprobed {
		for i, msg := range messages {
			if msg == nil || msg.unexpected == nil || rank == m.dead {
				continue
			}
			p := &placedAct{rank: rank, i: i, a: m.prog[rank][i], q: new(Request), mprobed: true}
			for _, s := range sent {
				if s.rank != msg.unexpected.peer || s.matched != nil {
					continue
				}
				if msg.unexpected.header.Kind == wire.RTS && s.q.id == msg.unexpected.header.Send || msg.unexpected.header.Kind == wire.Eager && bytes.Equal(msg.unexpected.data, s.q.Buf) {
					s.matched, p.matched, s.mprobed = p, s, true
					break
				}
			}
			probes = append(probes, p)
		}
	}
	return probes
}

// checkSend checks that a send is done exactly when it should be.
func (m *machine) checkSend(s *placedAct) error {
	switch {
	case s.rank == m.dead || s.a.peer == m.dead && s.q.Done() && (s.q.Err == nil || errors.Is(s.q.Err, errDead)):
		return nil
	case s.a.peer == m.dead:
		return fmt.Errorf("rank %d, %d: the send waits for a rank that has died, or ends with %v", s.rank, s.i, s.q.Err)
	}
	eager := s.a.size <= eagerLimit && !s.a.noCredit
	want := s.matched != nil && !s.mprobed || eager && s.a.mode != Synchronous
	if s.q.Done() != want || s.q.Err != nil {
		return fmt.Errorf("rank %d, %d: the send is done: %v, with error %v; matched: %v", s.rank, s.i, s.q.Done(), s.q.Err, s.matched != nil)
	}
	return nil
}

// checkOrder checks that no message has overtaken another, and that no matching send and
// receive are both unmatched.
func (m *machine) checkOrder(sent, recv []*placedAct) error {
	for _, p := range recv {
		for _, s := range sent {
			if !p.matches(s) || p.q.Cancelled || errors.Is(p.q.Err, errDead) || s.rank == m.dead || s.a.peer == m.dead {
				continue
			}
			if s.matched == nil && p.matched == nil {
				return fmt.Errorf("rank %d, %d and rank %d, %d wait for each other", s.rank, s.i, p.rank, p.i)
			}
			// The receive also matches a message that was sent before its own.
			if got := p.matched; got != nil && got.rank == s.rank && s.i < got.i && (s.matched == nil || s.matched.i > p.i) {
				return fmt.Errorf("rank %d, %d received message %d of rank %d, which has overtaken %d", p.rank, p.i, got.i, s.rank, s.i)
			}
			// A matching receive was posted before the one that received the message.
			if to := s.matched; to != nil && p.i < to.i && p.matched == nil {
				return fmt.Errorf("message %d of rank %d matched receive %d of rank %d, not the earlier %d", s.i, s.rank, to.i, p.rank, p.i)
			}
		}
	}
	return nil
}

// checkCleanup checks that completed requests hold no resources, and that both sides agree
// on pending requests.
func (m *machine) checkCleanup(sent, recv []*placedAct) error {
	for rank, n := range m.w.ranks {
		if rank == m.dead {
			continue
		}
		open, regions := false, 0
		for _, p := range append(sent[:len(sent):len(sent)], recv...) {
			if p.rank != rank {
				continue
			}
			open = open || !p.q.Done()
			if p.q.region != nil {
				regions++
			}
			if p.q.Done() && p.q.region != nil {
				return fmt.Errorf("rank %d, %d is done, but its memory is still registered", rank, p.i)
			}
		}
		if n.regions != regions || n.e.Busy() != open {
			return fmt.Errorf("rank %d has %d regions, and requests that need %d; it is busy: %v, and a request is open: %v", rank, n.regions, regions, n.e.Busy(), open)
		}
		for key, s := range n.e.senders {
			if err := m.checkSenderState(rank, key, s); err != nil {
				return err
			}
		}
	}
	return m.checkControlMessages()
}

// checkSenderState compares the state of a sender with that of its receiver.
func (m *machine) checkSenderState(rank int, key Envelope, s *senderState) error {
	peer := int(key.Source)
	if peer == m.dead {
		return fmt.Errorf("rank %d has the state of a sender to rank %d, which has died", rank, peer)
	}
	for _, h := range s.rtrs.pending() {
		i := m.actOf(peer, h.Recv)
		if i < 0 || m.reqs[peer][i].state != statePosted || !m.reqs[peer][i].sentRTR {
			return fmt.Errorf("rank %d has queued an RTR of a receive that is not posted at rank %d", rank, peer)
		}
	}
	for q := s.firstUnmatched; q != nil; q = q.nextUnmatched {
		if q.state != stateRTSSent {
			return fmt.Errorf("rank %d lists an unmatched send without an RTS", rank)
		}
	}
	h := m.w.ranks[peer].e.receiverStates[Envelope{Source: int32(rank), Tag: key.Tag}]
	if s.stopped != (h != nil && h.rtrStopped) {
		return fmt.Errorf("rank %d has stopped RTRs of tag %d: %v, and rank %d disagrees", rank, key.Tag, s.stopped, peer)
	}
	return nil
}

// checkControlMessages checks that every RTR sent was received.
func (m *machine) checkControlMessages() error {
	var sent, received uint64
	if m.dead >= 0 {
		return nil
	}
	for _, n := range m.w.ranks {
		sent += n.e.Stats.ControlMessages[wire.RTR]
		received += n.e.Stats.RTRsReceived + n.e.Stats.Advertisements
	}
	if sent != received {
		return fmt.Errorf("%d RTRs were sent, and %d received", sent, received)
	}
	return nil
}
