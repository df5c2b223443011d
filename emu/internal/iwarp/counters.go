package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Counters is what a layer counts. Every segment that arrives is counted once
// in SegmentsReceived, and in SegmentsDropped too if it came after the end of its
// stream.
type Counters struct {
	SegmentsSent, SegmentsReceived uint64
	OctetsSent, OctetsReceived     uint64 // of segments, headers included
	SegmentsDropped                uint64

	SendsReceived, WritesReceived  uint64 // messages
	ReadsReceived, AtomicsReceived uint64
	ResponsesReceived              uint64
	Invalidations                  uint64

	TerminatesSent, TerminatesReceived ReasonCounts
	// SilentEnds are failures that no Terminate was sent for: it answers a
	// Terminate, or the layer below is gone.
	SilentEnds uint64
}

// reasons are the errors that the RFCs define, in order.
var reasons = [...]wire.TermError{
	wire.TermRDMAPLocal,
	wire.TermProtInvalidSTag, wire.TermProtBounds, wire.TermProtAccess, wire.TermProtStream, wire.TermProtWrap,
	wire.TermProtNoInvalidate, wire.TermProtUnspecified,
	wire.TermOpVersion, wire.TermOpOpcode, wire.TermOpStream, wire.TermOpGlobal, wire.TermOpNoInvalidate, wire.TermOpUnspecified,
	wire.TermDDPLocal,
	wire.TermTaggedSTag, wire.TermTaggedBounds, wire.TermTaggedStream, wire.TermTaggedWrap, wire.TermTaggedVersion,
	wire.TermUntaggedQN, wire.TermUntaggedNoBuffer, wire.TermUntaggedMSN, wire.TermUntaggedMO, wire.TermUntaggedTooLong, wire.TermUntaggedVersion,
	wire.TermMPAClosed, wire.TermMPACRC, wire.TermMPAMarker, wire.TermMPAFrame, wire.TermMPALocal, wire.TermMPANotEnoughReads, wire.TermMPANoRTR,
}

// ReasonCounts counts Terminates by their reason: one count for each that the
// RFCs define, and the last for all others.
type ReasonCounts [len(reasons) + 1]uint64

// Add counts a Terminate.
func (c *ReasonCounts) Add(e wire.TermError) { c[reasonIndex(e)]++ }

// Of returns how many had a reason; for one that is not defined, how many had
// any such.
func (c *ReasonCounts) Of(e wire.TermError) uint64 { return c[reasonIndex(e)] }

// Total is how many there were.
func (c *ReasonCounts) Total() (n uint64) {
	for _, v := range c {
		n += v
	}
	return n
}

func reasonIndex(e wire.TermError) int {
	if e.Layer <= wire.LayerDDP && e.Type == wire.RDMAPLocal {
		e.Code = 0 // it says nothing
	}
	for i := range reasons {
		if reasons[i] == e {
			return i
		}
	}
	return len(reasons)
}

// reasonNames end the names of the counters of Terminates, in the order of
// ReasonCounts.
var reasonNames = func() (names [len(reasons) + 1]string) {
	for i, e := range reasons {
		names[i] = fmt.Sprintf("_%d_%d_%02x", uint8(e.Layer), e.Type, e.Code)
	}
	names[len(reasons)] = "_other"
	return names
}()

// List returns the counters by name: always the same ones, in the same order.
func (c *Counters) List() []verbs.Counter {
	list := []verbs.Counter{
		{Name: "sent_segments", Value: c.SegmentsSent},
		{Name: "rcvd_segments", Value: c.SegmentsReceived},
		{Name: "sent_octets", Value: c.OctetsSent},
		{Name: "rcvd_octets", Value: c.OctetsReceived},
		{Name: "drop_ended", Value: c.SegmentsDropped},
		{Name: "rcvd_sends", Value: c.SendsReceived},
		{Name: "rcvd_writes", Value: c.WritesReceived},
		{Name: "rcvd_reads", Value: c.ReadsReceived},
		{Name: "rcvd_atomics", Value: c.AtomicsReceived},
		{Name: "rcvd_responses", Value: c.ResponsesReceived},
		{Name: "invalidations", Value: c.Invalidations},
		{Name: "sent_terminates", Value: c.TerminatesSent.Total()},
		{Name: "rcvd_terminates", Value: c.TerminatesReceived.Total()},
		{Name: "silent_ends", Value: c.SilentEnds},
	}
	list = c.TerminatesSent.list(list, "sent_terminate")
	return c.TerminatesReceived.list(list, "rcvd_terminate")
}

func (c *ReasonCounts) list(list []verbs.Counter, prefix string) []verbs.Counter {
	for i, v := range c {
		list = append(list, verbs.Counter{Name: prefix + reasonNames[i], Value: v})
	}
	return list
}
