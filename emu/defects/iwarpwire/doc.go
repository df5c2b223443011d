// Package iwarpwire makes a sound soft-iWARP NIC misbehave at its wire: between the
// engine and the streams of TCP, start-up frames and FPDUs are changed, dropped,
// held back and reordered, and answers are made up, so that what a peer sees is a
// NIC with a defect. The engine knows nothing of it. Defects that no octet of a
// stream tells are mutants, or policies of the engine (package defects).
//
// What comes in is shown to the engine as something that passes the check which
// the defective NIC lacks, framed as the engine expects it. What the engine writes is
// taken apart and framed anew, with a CRC that fits unless that is the defect.
//
// The package is as pure as an engine: no clock, no I/O. An Edge and its Conns
// belong to whom their NIC belongs to. It is made for tests and allocates as it
// likes; a NIC without defects has no Edge.
package iwarpwire

import (
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// Sound is the end of a stream behind a Conn: an engine's, as the driver of
// streams would have it.
type Sound interface {
	Connected(now mono.Time, local, remote netip.AddrPort, mss int)
	Failed(now mono.Time, err error)
	Input(now mono.Time, b []byte)
	InputEOF(now mono.Time)
	Output(into [][]byte) (bufs [][]byte, then link.StreamEnd)
	Sent(now mono.Time, n int)
}

// Edge is the defects of a NIC.
type Edge struct {
	q     Defects
	noCRC bool // the NIC does not ask for CRCs
	now   mono.Time

	framesIn, framesOut []frameStep // what is done to start-up frames
	in, out             []step      // and to segments

	ready  []*Conn        // that have something to write, of which the sound side knows nothing
	late   []*Conn        // that keep Writes back, by age
	depths *wire.Enhanced // what the last enhanced Request said: EnhancedRevision1
}

// frameStep is one defect at work on a start-up frame, step one at work on a
// segment. They report whether it goes on.
type (
	frameStep func(c *Conn, f *frame) bool
	step      func(c *Conn, s *segment) bool
)

// placementDelay is how long a Write waits for a message behind it.
const placementDelay = time.Millisecond

// New returns the defects q of a NIC. noCRC says that it does not ask for CRCs.
func New(q Defects, noCRC bool) *Edge {
	e := &Edge{q: q, noCRC: noCRC}
	e.planFrames()
	e.planSegments()
	return e
}

// Conn puts the defects around one end of a stream.
func (e *Edge) Conn(sound Sound, initiator bool) *Conn {
	return &Conn{edge: e, q: &e.q, sound: sound, initiator: initiator, vectors: make([][]byte, 0, 64)}
}

// Settle tells the time.
func (e *Edge) Settle(now mono.Time) { e.now = now }

// Deadline is when Tick must be called next; mono.Never if not at all.
func (e *Edge) Deadline() mono.Time {
	if len(e.late) == 0 {
		return mono.Never
	}
	return e.late[0].lateAt
}

// Tick does what is due.
func (e *Edge) Tick(now mono.Time) {
	e.now = now
	for len(e.late) > 0 && !now.Before(e.late[0].lateAt) {
		e.late[0].placeLate()
	}
}

// NextOutput returns the next connection that has come to have something to
// write without its sound side.
func (e *Edge) NextOutput() (*Conn, bool) {
	if len(e.ready) == 0 {
		return nil, false
	}
	c := e.ready[0]
	e.ready, c.ready = e.ready[1:], false
	return c, true
}

// planFrames lines up the defects of start-up frames: what tells whether a frame is
// taken before what it means, and on the way out lengths and keys last.
func (e *Edge) planFrames() {
	q := &e.q
	for _, f := range []struct {
		on   bool
		list *[]frameStep
		do   frameStep
	}{
		{q.KeyPrefixOnly, &e.framesIn, completeKey},
		{q.MPAReservedRefused, &e.framesIn, nothingReserved},
		{q.AnyRevision, &e.framesIn, atMostRevision2},
		{q.DemandsRevision2, &e.framesIn, notRevision1},
		{q.ShortFramesTaken, &e.framesIn, fillDepths},
		{q.LongPrivateDataTaken, &e.framesIn, cutPrivateData},
		{q.PrivateDataOverrun, &e.framesIn, allIsPrivate},
		{q.RejectCloses, &e.framesIn, loseReason},
		{q.RejectIsAccept, &e.framesIn, ignoreReject},
		{q.ReplyDepthsIgnored, &e.framesIn, openDepths},
		{q.RTRUnasked, &e.framesIn, onlyWrite},
		{q.CRCAlwaysChecked, &e.framesIn, claimCRC},

		{q.CRCAlwaysChecked, &e.framesOut, unclaimCRC},
		{q.CRCNeedsBoth, &e.framesOut, ownWish},
		{q.RejectCloses, &e.framesOut, noReject},
		{q.EnhancedRevision1, &e.framesOut, enhanceOld},
		{q.ForcesEnhanced, &e.framesOut, enhanceReply},
		{q.DepthsUnbounded, &e.framesOut, grantAll},
		{q.ForgetsPeerToPeer, &e.framesOut, clearFlags},
		{q.NoRTROffered, &e.framesOut, offerNothing},
		{q.RTRBitsLeft, &e.framesOut, repeatFlags},
		{q.TalksAfterReject, &e.framesOut, talkAfterReject},
		{q.EnhancedUncounted, &e.framesOut, uncount},
		{q.KeysExchanged, &e.framesOut, otherKey},
		{q.ResponderSpeaksFirst, &e.framesOut, wrongOrder},
	} {
		if f.on {
			*f.list = append(*f.list, f.do)
		}
	}
}

// planSegments lines up the defects of segments: on the way in opcode and version
// before what they decide; on the way out numbers before layout, and the T flag,
// without which nothing can be read, last.
func (e *Edge) planSegments() {
	q := &e.q
	for _, f := range []struct {
		on   bool
		list *[]step
		do   step
	}{
		{q.OpcodeMasked, &e.in, maskOpcode},
		{q.StrangeTerminateIgnored, &e.in, plainTerminate},
		{q.TerminateAnswered, &e.in, answerTerminate},
		{q.ReservedBitsChecked, &e.in, noReservedBits},
		{q.VersionsUnchecked, &e.in, rightVersions},
		{q.UntaggedUnchecked, &e.in, inPlace},
		{q.RTRAlwaysExpected, &e.in, firstIsRTR},
		{q.RTRUncounted, &e.in, countWithoutRTR},
		{q.OddOffsetRefused, &e.in, evenOffset},
		{q.EverySendSolicited, &e.in, solicit},
		{q.ReadSize16, &e.in, shortenRead},
		{q.AnyAtomicAdds, &e.in, unknownAdds},
		{q.AddMaskIsAnd, &e.in, maskOperand},
		{q.MasksSwapped, &e.in, swapMasks},
		{q.SwapsAlways, &e.in, compareNothing},
		{q.ImmediateAnyLength, &e.in, fitImmediate},
		{q.WritesPlacedLate, &e.in, keepWrite},

		{q.ErrorResets, &e.out, resetInstead},
		{q.LocalErrorSilent, &e.out, hideLocal},
		{q.TermHeaderStale, &e.out, staleHeaders},
		{q.TermAllHeaders, &e.out, allHeaders},
		{q.CodesShifted, &e.out, shiftCode},
		{q.MPAErrorType, &e.out, typeOne},
		{q.TermOtherQueue, &e.out, queueZero},
		{q.RTRLate, &e.out, holdRTR},
		{q.RTRUncounted, &e.out, uncountRTR},
		{q.ZeroLengthSkipped, &e.out, skipEmpty},
		{q.SegmentEdgeLost, &e.out, shiftPayload},
		{q.TailFirst, &e.out, holdMessage},
		{q.SegmentsCounted, &e.out, countSegments},
		{q.OffsetsStandStill, &e.out, firstOffset},
		{q.MSNShared, &e.out, oneCounter},
		{q.QueuesMixed, &e.out, otherQueues},
		{q.LastOnEvery, &e.out, claimLast},
		{q.ImmediateOfFour, &e.out, halveImmediate},
		{q.UnusedFieldsStale, &e.out, fillUnused},
		{q.RDMAPVersion0, &e.out, version0},
		{q.FieldsSwapped, &e.out, swapFields},
		{q.ControlFirstOnly, &e.out, emptyControl},
		{q.TaggedFlagInverted, &e.out, invertTagged},
	} {
		if f.on {
			*f.list = append(*f.list, f.do)
		}
	}
}
