package iwarp

import (
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Defects makes a layer behave as soft-iWARP of Linux does ("siw"); the zero value has none.
// Tags say what a defect does, and which requirement of the RFCs it violates. Other defects
// of the layer are in emu/defects/mutants.
type Defects struct {
	// Received segments.
	TaggedFlagIgnored      bool `imitates:"siw, rfc5041/4.1/2" does:"the T flag is ignored: the opcode decides which header follows"`
	ReadQueueUnchecked     bool `imitates:"siw, rfc5041/7.1/1" does:"queue number and offset of a Read Request are ignored"`
	TaggedInOrder          bool `imitates:"siw, rfc5041/5.3/5" does:"a Write whose offsets do not follow one another is refused"`
	WrapUnchecked          bool `imitates:"siw, rfc5041/7.1/10" does:"a Write that wraps is a local error, and a Read that wraps ends the stream in silence"`
	ReadRightsUnchecked    bool `imitates:"siw, rfc5040/5.2.1/10" does:"memory can be read without the right to"`
	ReadPayloadSilent      bool `imitates:"siw, rfc5040/4.2/1" does:"a Read Request with a payload ends the stream without a Terminate"`
	OpcodeChangeSilent     bool `imitates:"siw, rfc5040/6.2.1/1" does:"a message that changes its opcode ends the stream without a Terminate"`
	ShortResponseTaken     bool `imitates:"siw, rfc5040/5.2.2/7" does:"a Read Response that ends early completes its read with success"`
	ZeroResponseChecked    bool `imitates:"siw, rfc5041/5.2/6" does:"a Read Response of no octets must name the sink of its request"`
	LaterResponseUnchecked bool `imitates:"siw, rfc5040/5.2.2/5" does:"only the first segment of a Read Response is held against its request"`
	InvalidateErrorKept    bool `imitates:"siw, rfc5040/5.3/9" does:"a Send that cannot invalidate completes in error and the stream goes on"`
	NeverSolicited         bool `imitates:"siw, rfc5040/5.3/6" does:"a Send with solicited event raises none"`
	NoExtensions           bool `imitates:"siw, rfc7306/1.1/1" does:"atomics and immediate data are unknown opcodes"`
	IRDRoundedUp           bool `imitates:"siw, rfc5040/6.1/3" does:"one more read than the next power of two is taken"`

	// Requests and answers.
	ORDRoundedUp    bool `imitates:"siw, rfc5040/6.1/2" does:"the limit of reads under way is rounded up to a power of two"`
	ZeroReadRepeats bool `imitates:"siw, rfc5040/5.2.1/9" does:"a Read of nothing behind another answers with the other's octets"`
	SendsOvertake   bool `imitates:"siw, rfc5040/5.5/6" does:"a send or write completes before a read that was posted earlier"`

	// Terminates.
	LongIsNoBuffer      bool `imitates:"siw, rfc5041/7.1/4" does:"a message too long for its buffer is reported as one without"`
	ReadOverflowsStream bool `imitates:"siw, rfc5041/7.1/2" does:"one read too many is a catastrophic error of the stream, not a missing buffer"`
	UnaskedIsLocal      bool `imitates:"siw, rfc5040/5.2.2/6" does:"a Read Response that nobody asked for is reported as a local error"`
	TermBitsSwapped     bool `imitates:"siw, rfc5040/4.8/1" does:"Terminates have the halves of their first octet swapped, and their flags at the wrong end"`
	TermPayloadLength   bool `imitates:"siw, rfc5041/7.1/13" does:"the segment length in a Terminate leaves the headers out"`
	TermBareOperation   bool `imitates:"siw, rfc5040/4.8/5" does:"Terminates for a wrong version or opcode have no header"`
	TermReadStale       bool `imitates:"siw, rfc5040/4.8/6" does:"the Terminate of a Read shows it as it came, with its size in place of its number"`
	TermInvalidateFlag  bool `imitates:"siw, rfc5040/4.8/4" does:"the Terminate of a Send with Invalidate claims a header that is not there"`
	TermSkipped         bool `imitates:"siw, rfc5040/6.2.1/1" does:"no Terminate is sent if a message is half out"`
}

// siwState is the state that a stream keeps for some of Defects.
type siwState struct {
	nextSTag wire.STag // where the next segment of the current Write must start
	nextTO   uint64
	current  wire.ReadRequest // the read that is being answered, as received
}

// inOrder implements Defects.TaggedInOrder: it reports whether a segment of n octets continues
// the current Write. begun is false for the first segment of a Write.
func (f *siwState) inOrder(begun bool, t *wire.Tagged, n uint64) bool {
	ok := !begun || t.STag == f.nextSTag && t.TO == f.nextTO
	f.nextSTag, f.nextTO = t.STag, t.TO+n
	return ok
}

// beginRead stores the read that is answered next. With repeat, a read of no octets becomes a
// copy of the previous read: Defects.ZeroReadRepeats.
func (f *siwState) beginRead(r *wire.ReadRequest, repeat bool) {
	if repeat && r.Size == 0 {
		r.Size, r.SrcSTag, r.SrcTO = f.current.Size, f.current.SrcSTag, f.current.SrcTO
	}
	f.current = *r
}

// parseByOpcode implements Defects.TaggedFlagIgnored: it parses the header that belongs to the
// opcode.
func (s *Stream) parseByOpcode(a *rxSegment) bool {
	c := a.hdr.Control
	if info, ok := c.Opcode.Info(); !ok || info.Tagged == c.Tagged {
		return true
	}
	c.Tagged = !c.Tagged
	a.hdr = wire.Header{Control: c}
	var err error
	if rest := a.raw[wire.ControlLen:]; c.Tagged {
		a.body, err = a.hdr.Tagged.Parse(rest)
	} else {
		a.body, err = a.hdr.Untagged.Parse(rest)
	}
	if err != nil {
		s.refuse(wire.TermOpUnspecified, nil)
	}
	return err == nil
}

// completeEarly implements Defects.SendsOvertake: it completes requests that only wait for an
// earlier read.
func (s *Stream) completeEarly() {
	for r := s.first; r != nil && r != s.sending; r = r.next {
		if !r.reported && r.stage == sent && s.isDone(r) {
			r.reported = true
			s.owner.Completed(r, verbs.WCSuccess)
		}
	}
}

// PlaceEarly imitates a stack that places the payload of a Write before the segment is
// complete. part is the beginning of a segment. Input handles the whole segment later, and
// reports its errors.
func (s *Stream) PlaceEarly(part []byte) {
	var h wire.Header
	body, err := h.Parse(part)
	if err != nil || s.state != open || h.Control.Opcode != wire.OpWrite || !h.Control.Tagged || len(body) == 0 {
		return
	}
	if mem, at, err := s.resolveRemote(h.Tagged.STag, h.Tagged.TO, uint64(len(body)), verbs.AccessRemoteWrite); err == nil {
		_ = mem.WriteAt(body, at) // Input reports the error
	}
}

// PlaceUnchecked imitates a stack that checks a segment after placing it: the payload of an
// invalid segment is written to memory. The caller must fail the stream afterwards.
func (s *Stream) PlaceUnchecked(segment []byte) {
	a := rxSegment{raw: segment}
	var err error
	if a.body, err = a.hdr.Parse(segment); err != nil || s.state != open || !a.hdr.Control.Consistent() {
		return
	}
	mem := s.ep.Layer.NIC
	switch info, _ := a.hdr.Control.Opcode.Info(); {
	case a.hdr.Control.Opcode == wire.OpReadResponse && s.oldestRead != nil && s.oldestRead.Op == verbs.OpRDMARead:
		if off, _, ok := s.sinkOffset(s.oldestRead, &a); ok && uint32(len(a.body)) <= s.oldestRead.Length-off {
			_ = mem.Scatter(s.oldestRead.SGL, s.ep.PD, off, a.body) // the stream fails in any case
		}
	case info.Class.Has(wire.HasPayload|wire.ConsumesRecv) && a.hdr.Untagged.MO == s.recvLen:
		if s.recv == nil {
			s.recv = s.owner.NextReceive()
		}
		if s.recv != nil && uint32(len(a.body)) <= s.recv.Length-s.recvLen {
			_ = mem.Scatter(s.recv.SGL, s.recv.PD, s.recvLen, a.body)
		}
	default:
		s.PlaceEarly(segment)
	}
}
