package iwarp

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Request is a work request on its way through a stream. The queue pair owns it,
// fills in Work and posts it; from then until Retired it is the stream's.
type Request struct {
	nic.Work
	// RTR is set in a read that says that its sender is ready to receive (RFC
	// 6581): it may leave though no reads may be under way.
	RTR bool

	next        *Request
	sent        uint32 // octets of payload that have left
	lastSegment uint32 // Stream.segmentsOutput after the last segment
	received    uint32 // octets of the response
	msn         wire.MSN
	stage       stage
	status      verbs.WCStatus // what it fails with, if it does
	reported    bool           // Completed was called
}

// stage is how far a request has got.
type stage uint8

const (
	waiting   stage = iota
	requested       // the Read or Atomic Request was output, the response is missing
	sent            // all segments were output
	done
)

// Post appends r to the requests of the stream, which must be Live.
func (s *Stream) Post(r *Request) {
	r.next, r.sent, r.received, r.stage, r.status, r.reported = nil, 0, 0, waiting, verbs.WCSuccess, false
	if s.last == nil {
		s.first = r
	} else {
		s.last.next = r
	}
	s.last = r
	if s.sending == nil {
		s.sending = r
	}
}

// answered reports whether op is one that the peer answers.
func hasResponse(op verbs.WROpcode) bool {
	switch op {
	case verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		return true
	}
	return false
}

// Taken says that the layer below has accepted n more of the segments that
// Output gave, in order, as a whole.
func (s *Stream) Taken(n int) {
	s.segmentsAccepted += uint32(n)
	if s.state == open {
		s.complete()
	}
}

// over reports whether r has been carried out.
func (s *Stream) isDone(r *Request) bool {
	return r.stage == done || r.stage == sent && int32(s.segmentsAccepted-r.lastSegment) >= 0
}

// complete retires what has been carried out, in the order of posting: a send
// behind an unanswered read waits for it.
func (s *Stream) complete() {
	for s.first != nil && s.first.stage >= sent && s.isDone(s.first) {
		s.retire(verbs.WCSuccess)
	}
	if s.defects().SendsOvertake {
		s.completeEarly()
	}
}

// retire takes the oldest request off the stream.
func (s *Stream) retire(status verbs.WCStatus) {
	r := s.first
	s.first = r.next
	if s.first == nil {
		s.last = nil
	}
	if s.sending == r {
		s.sending = r.next
	}
	r.next = nil
	if !r.reported {
		s.owner.Completed(r, status)
	}
	s.owner.Retired(r)
}

// flush completes all that is under way in error: the requests in the order of
// posting, then the receive.
func (s *Stream) flush(recv verbs.WCStatus) {
	for s.first != nil {
		status := s.first.status
		if status == verbs.WCSuccess {
			status = verbs.WCWRFlushErr
		}
		s.retire(status)
	}
	s.oldestRead, s.outstanding = nil, 0
	if r := s.recv; r != nil {
		s.recv = nil
		s.owner.Received(r, verbs.WC{Status: recv, Opcode: verbs.WCOpRecv}, false)
	}
}
