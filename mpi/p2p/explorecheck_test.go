package p2p

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// left are those that are.
func (q *rtrQueue) pending() []wire.Header { return q.all[q.first:] }

// balanced checks what holds at any time: every RTR that came was used, dropped, or is
// kept.
func (r *exploredRun) checkRTRCounts() error {
	for rank, n := range r.w.ranks {
		kept := 0
		for _, s := range n.e.senders {
			kept += s.rtrs.len()
		}
		if st := &n.e.Stats; st.RTRsCame != st.RTRsUsed+st.RTRsDropped+uint64(kept) {
			return fmt.Errorf("rank %d: %d RTRs came, %d were used, %d dropped, and %d are kept", rank, st.RTRsCame, st.RTRsUsed, st.RTRsDropped, kept)
		}
	}
	return nil
}

// placed is an act with its place.
type placedAct struct {
	rank, i int
	a       act
	q       *Request
	with    *placedAct // whom it has met
	held    bool       // the message was taken out, and is not received yet
}

// accepts reports whether a receive takes a message, as MPI says.
func (p *placedAct) accepts(s *placedAct) bool {
	return s.a.peer == p.rank && (p.a.peer == match.Any || p.a.peer == s.rank) && (p.a.tag == match.Any || p.a.tag == s.a.tag)
}

// check looks at a run from whose end nothing more can happen.
func (r *exploredRun) check(prog program) error {
	var sent, recv []*placedAct
	for rank, acts := range prog {
		for i, a := range acts {
			q := r.reqs[rank][i]
			switch {
			case q == nil:
			case a.what == sends && a.noMemory && q.Done() && errors.Is(q.Err, errNoMemory): // there was no message
			case a.what == sends:
				sent = append(sent, &placedAct{rank: rank, i: i, a: a, q: q})
			case a.what == gets: // its place is where the message was taken out
				recv = append(recv, &placedAct{rank: rank, i: a.which, a: acts[a.which], q: q})
			default:
				recv = append(recv, &placedAct{rank: rank, i: i, a: a, q: q})
			}
		}
	}
	blind, err := matchReceives(sent, recv)
	if err != nil {
		return err
	}
	held := r.mprobedMessages(prog, sent)
	for _, p := range blind { // last: it can only be what is left
		if !p.matchTo(sent, func(*placedAct) bool { return true }) {
			return fmt.Errorf("rank %d, %d: the receive has met a message that nobody has sent", p.rank, p.i)
		}
	}
	for _, s := range sent {
		if err := checkSend(s); err != nil {
			return err
		}
	}
	if err := checkOrder(sent, append(recv[:len(recv):len(recv)], held...)); err != nil {
		return err
	}
	return r.checkCleanup(sent, recv)
}

// meet finds out which message each receive has got, by what it says. Blind are those
// that could not register their memory, and have got a message without its contents.
func matchReceives(sent, recv []*placedAct) (blind []*placedAct, err error) {
	for _, p := range recv {
		q := p.q
		switch {
		case !q.Done() && q.state != statePosted:
			return nil, fmt.Errorf("rank %d, %d: the receive has met its message, and is not done", p.rank, p.i)
		case !q.Done() || q.Cancelled:
		case p.a.noMemory && errors.Is(q.Err, errNoMemory):
			blind = append(blind, p)
		default:
			n := min(q.Size, len(q.Buf))
			if !p.matchTo(sent, func(s *placedAct) bool { return bytes.Equal(q.Buf[:n], s.q.Buf[:n]) }) {
				return nil, fmt.Errorf("rank %d, %d: the receive has %d bytes of tag %d from %d that nobody has sent, or that somebody else has: % x", p.rank, p.i, q.Size, q.MatchedTag, q.Source, q.Buf[:n])
			}
			if errors.Is(q.Err, ErrTruncated) != (q.Size > len(q.Buf)) || q.Err != nil && !errors.Is(q.Err, ErrTruncated) {
				return nil, fmt.Errorf("rank %d, %d: %d bytes for %d end with %v", p.rank, p.i, q.Size, len(q.Buf), q.Err)
			}
		}
	}
	return blind, nil
}

// meets brings a receive that is done together with the first message that it can have
// got, and reports whether there is one.
func (p *placedAct) matchTo(sent []*placedAct, same func(*placedAct) bool) bool {
	for _, s := range sent {
		if p.accepts(s) && s.with == nil && p.q.Source == s.rank && int(p.q.MatchedTag) == s.a.tag && p.q.Size == s.a.size && same(s) {
			p.with, s.with = s, p
			return true
		}
	}
	return false
}

// held finds the messages that were taken out by programs which have not come to
// receive them.
func (r *exploredRun) mprobedMessages(prog program, sent []*placedAct) (takers []*placedAct) {
	for rank, took := range r.took {
		for i, m := range took {
			if m == nil || m.a == nil {
				continue
			}
			p := &placedAct{rank: rank, i: i, a: prog[rank][i], q: new(Request), held: true}
			for _, s := range sent {
				if s.rank != m.a.peer || s.with != nil {
					continue
				}
				if m.a.header.Kind == wire.RTS && s.q.id == m.a.header.Send || m.a.header.Kind == wire.Eager && bytes.Equal(m.a.data, s.q.Buf) {
					s.with, p.with, s.held = p, s, true
					break
				}
			}
			takers = append(takers, p)
		}
	}
	return takers
}

// checkSend checks that a send is done when it should be.
func checkSend(s *placedAct) error {
	eager := s.a.size <= limit && !s.a.noRoom
	want := s.with != nil && !s.held || eager && s.a.mode != Synchronous
	if s.q.Done() != want || s.q.Err != nil {
		return fmt.Errorf("rank %d, %d: the send is done: %v, with error %v; it has met a receive: %v", s.rank, s.i, s.q.Done(), s.q.Err, s.with != nil)
	}
	return nil
}

// ordered checks that nothing has overtaken anything, and that nobody waits for what is
// there.
func checkOrder(sent, recv []*placedAct) error {
	for _, p := range recv {
		for _, s := range sent {
			if !p.accepts(s) || p.q.Cancelled {
				continue
			}
			if s.with == nil && p.with == nil {
				return fmt.Errorf("rank %d, %d and rank %d, %d wait for each other", s.rank, s.i, p.rank, p.i)
			}
			// A message that the receive takes was sent before the one that it has got.
			if got := p.with; got != nil && got.rank == s.rank && s.i < got.i && (s.with == nil || s.with.i > p.i) {
				return fmt.Errorf("rank %d, %d has got message %d of rank %d, which has overtaken %d", p.rank, p.i, got.i, s.rank, s.i)
			}
			// A receive that takes the message was posted before the one that has got it.
			if to := s.with; to != nil && p.i < to.i && p.with == nil {
				return fmt.Errorf("message %d of rank %d went to receive %d of rank %d, past %d", s.i, s.rank, to.i, p.rank, p.i)
			}
		}
	}
	return nil
}

// tidy checks that nothing is left of what is done, and that both ends agree on the
// rest.
func (r *exploredRun) checkCleanup(sent, recv []*placedAct) error {
	for rank, n := range r.w.ranks {
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
				return fmt.Errorf("rank %d, %d is done, and its memory registered", rank, p.i)
			}
		}
		if n.regions != regions || n.e.Busy() != open {
			return fmt.Errorf("rank %d has %d regions, and requests that need %d; it is busy: %v, and a request is open: %v", rank, n.regions, regions, n.e.Busy(), open)
		}
		for key, s := range n.e.senders {
			if err := r.checkSenderState(rank, key, s); err != nil {
				return err
			}
		}
	}
	return r.checkControlMessages()
}

// agree checks what a sender believes of an envelope.
func (r *exploredRun) checkSenderState(rank int, key match.Envelope, s *senderState) error {
	peer := int(key.Source)
	for _, h := range s.rtrs.pending() {
		i := r.act(peer, h.Recv)
		if i < 0 || r.reqs[peer][i].state != statePosted || !r.reqs[peer][i].sentRTR {
			return fmt.Errorf("rank %d keeps an RTR of a receive that rank %d does not wait with", rank, peer)
		}
	}
	for q := s.firstUnmatched; q != nil; q = q.nextUnmatched {
		if q.state != stateRTSSent {
			return fmt.Errorf("rank %d waits to hear of a send that is not offered", rank)
		}
	}
	h := r.w.ranks[peer].e.receivers[match.Envelope{Source: int32(rank), Tag: key.Tag}]
	if s.stopped != (h != nil && h.rtrStopped) {
		return fmt.Errorf("rank %d has stopped RTRs of tag %d: %v, and rank %d thinks otherwise", rank, key.Tag, s.stopped, peer)
	}
	return nil
}

// words checks that as many words came as were sent, and that no receive speaks whose
// RTR nobody has.
func (r *exploredRun) checkControlMessages() error {
	var rtrs, came uint64
	for _, n := range r.w.ranks {
		rtrs += n.e.Stats.Words[wire.RTR]
		came += n.e.Stats.RTRsCame
	}
	if rtrs != came {
		return fmt.Errorf("%d RTRs were sent, and %d came", rtrs, came)
	}
	return nil
}
