package iwarp

import (
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Request is a work request. The queue pair owns it, fills in Work and posts it; the stream
// uses it until Retired.
type Request struct {
	nic.Work
	// RTR marks the ready-to-receive read of RFC 6581. It is sent even if ORD is 0.
	RTR bool

	next        *Request
	sent        uint32 // octets of payload that were output
	lastSegment uint32 // Stream.segmentsOutput after the last segment
	received    uint32 // octets of the response
	msn         wire.MSN
	stage       stage
	status      verbs.WCStatus // error status, if it has failed
	reported    bool           // Completed was called
}

// stage is the progress of a request.
type stage uint8

const (
	waiting   stage = iota
	requested       // the Read or Atomic Request was output, the response is missing
	sent            // all segments were output
	done
)

// Post queues r. The stream must be Live.
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

// hasResponse reports whether the peer responds to op: reads and atomics.
func hasResponse(op verbs.WROpcode) bool {
	switch op {
	case verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		return true
	}
	return false
}

// Accepted reports that the layer below has accepted the next n segments of Output completely. It
// completes the requests that are finished by that.
func (s *Stream) Accepted(n int) {
	s.segmentsAccepted += uint32(n)
	if s.state == open {
		s.complete()
	}
}

// isDone reports whether r can complete, apart from the order of requests.
func (s *Stream) isDone(r *Request) bool {
	return r.stage == done || r.stage == sent && int32(s.segmentsAccepted-r.lastSegment) >= 0
}

// complete retires finished requests in the order of posting. A send after an outstanding read
// waits for the read, unless the policy CompleteEarly completes it before.
func (s *Stream) complete() {
	for s.first != nil && s.first.stage >= sent && s.isDone(s.first) {
		s.retire(verbs.WCSuccess)
	}
	if !s.policy().CompleteEarly {
		return
	}
	for r := s.first; r != nil && r != s.sending; r = r.next {
		if !r.reported && r.stage == sent && s.isDone(r) {
			r.reported = true
			s.owner.Completed(r, verbs.WCSuccess)
		}
	}
}

// retire removes the oldest request from the stream and completes it, unless complete did so early.
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

const notSolicited = false // argument of Owner.Received

// flush completes all requests in error, in the order of posting, and then the current receive with
// recvStatus.
func (s *Stream) flush(recvStatus verbs.WCStatus) {
	for s.first != nil {
		status := s.first.status
		if status == verbs.WCSuccess {
			status = verbs.WCWRFlushErr
		}
		s.retire(status)
	}
	s.oldestOutstanding, s.outstanding = nil, 0
	if r := s.recv; r != nil {
		s.recv = nil
		s.owner.Received(r, verbs.WC{Status: recvStatus, Opcode: verbs.WCOpRecv}, notSolicited)
	}
}
