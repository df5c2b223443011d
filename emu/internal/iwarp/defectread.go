package iwarp

import (
	"slices"

	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// How a layer that is Defects counts and orders requests.

// unlimitedReads bounds even IRDUnlimited.
const unlimitedReads = 4096

// placesGone reports whether a read of the peer finds no place though there is one.
func (s *Stream) placesGone(limit int) bool {
	s.defectState.asked++
	defects := s.defects()
	return defects.IRDLeaks && s.defectState.asked > limit || defects.ReadQueueShared && s.pooled() >= limit
}

// pooled is how many reads of all streams wait for their answers.
func (s *Stream) pooled() (n int) {
	l := s.ep.Layer
	if !slices.Contains(l.pool, s) {
		l.pool = append(l.pool, s)
	}
	l.pool = slices.DeleteFunc(l.pool, func(x *Stream) bool { return x.state != open })
	for _, x := range l.pool {
		if x.reads != nil {
			n += x.reads.count
		}
	}
	return n
}

// choose brings the shortest of the peer's reads to the front, and begins to
// answer it.
func (s *Stream) choose() bool {
	q := s.reads
	at := func(i int) *pending { return &q.ring[(q.head+i)%len(q.ring)] }
	size := func(p *pending) uint64 {
		if p.atomic {
			return 1 << 32
		}
		return uint64(p.read.Size)
	}
	shortest := 0
	for i := range q.count {
		if size(at(i)) < size(at(shortest)) {
			shortest = i
		}
	}
	first := *at(shortest)
	for i := shortest; i > 0; i-- {
		*at(i) = *at(i - 1)
	}
	*at(0) = first
	s.defectState.choosing = true
	s.begin(true)
	s.defectState.choosing = false
	return s.state == open
}

// countApart has atomics counted by themselves, or reads again.
func (s *Stream) countApart() {
	n := &s.ours[wire.QueueReadRequest]
	*n, s.defectState.atomicMSN = s.defectState.atomicMSN, *n
}

// underWay is how many requests of the kind of op are without a response.
func (s *Stream) underWay(op verbs.WROpcode) uint16 {
	if op == verbs.OpRDMARead {
		return s.outstanding - s.defectState.atomics
	}
	return s.defectState.atomics
}

// pieceLeft is how much of the piece of memory that r has got to is still to be
// sent.
func pieceLeft(r *Request) int {
	off := r.sent
	for i := range r.SGL {
		n := r.SGL[i].Length
		if off < n {
			return int(n - off)
		}
		off -= n
	}
	return int(r.Length - r.sent)
}
