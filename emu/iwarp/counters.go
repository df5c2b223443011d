package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Counters are the counters of a layer. SegmentsReceived counts every segment that arrives,
// SegmentsDropped those of them that arrived after the end of their stream.
type Counters struct {
	SegmentsSent      uint64 `counter:"sent_segments"`
	SegmentsReceived  uint64 `counter:"rcvd_segments"`
	OctetsSent        uint64 `counter:"sent_octets"` // of segments, headers included
	OctetsReceived    uint64 `counter:"rcvd_octets"`
	SegmentsDropped   uint64 `counter:"drop_ended"`
	SendsReceived     uint64 `counter:"rcvd_sends"` // messages
	WritesReceived    uint64 `counter:"rcvd_writes"`
	ReadsReceived     uint64 `counter:"rcvd_reads"`
	AtomicsReceived   uint64 `counter:"rcvd_atomics"`
	ResponsesReceived uint64 `counter:"rcvd_responses"`
	Invalidations     uint64 `counter:"invalidations"`

	TerminatesSent, TerminatesReceived ReasonCounts
	// SilentEnds counts streams that failed without sending a Terminate: the peer had sent
	// one, or the layer below was gone.
	SilentEnds uint64
}

var counterNames = nic.NewCounterNames[Counters]()

// reasons are the Terminate errors that the RFCs define.
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

// ReasonCounts counts Terminates by error: one counter for each of reasons, the last for others.
type ReasonCounts [len(reasons) + 1]uint64

// Add counts a Terminate.
func (c *ReasonCounts) Add(e wire.TermError) { c[reasonIndex(e)]++ }

// Of returns the number of Terminates with error e. Errors that no RFC defines share one counter.
func (c *ReasonCounts) Of(e wire.TermError) uint64 { return c[reasonIndex(e)] }

// Total returns the number of all Terminates.
func (c *ReasonCounts) Total() (n uint64) {
	for _, v := range c {
		n += v
	}
	return n
}

// reasonIndex returns the index of a Terminate error in reasons, the errors with a counter of their
// own, or len(reasons) if it has none.
func reasonIndex(e wire.TermError) int {
	if e.Layer <= wire.LayerDDP && e.Type == wire.RDMAPLocal {
		e.Code = 0 // type 0 is the local error of RDMAP and of DDP, whose code has no meaning
	}
	for i := range reasons {
		if reasons[i] == e {
			return i
		}
	}
	return len(reasons)
}

// reasonNames are the suffixes of the counter names, in the order of ReasonCounts.
var reasonNames = func() (names [len(reasons) + 1]string) {
	for i, e := range reasons {
		names[i] = fmt.Sprintf("_%d_%d_%02x", uint8(e.Layer), e.Type, e.Code)
	}
	names[len(reasons)] = "_other"
	return names
}()

// List returns all counters by name, always in the same order.
func (c *Counters) List() []verbs.Counter {
	list := append(counterNames.Append(nil, c),
		verbs.Counter{Name: "sent_terminates", Value: c.TerminatesSent.Total()},
		verbs.Counter{Name: "rcvd_terminates", Value: c.TerminatesReceived.Total()},
		verbs.Counter{Name: "silent_ends", Value: c.SilentEnds})
	list = c.TerminatesSent.list(list, "sent_terminate")
	return c.TerminatesReceived.list(list, "rcvd_terminate")
}

// list appends the counters of c to list, with names that begin with prefix.
func (c *ReasonCounts) list(list []verbs.Counter, prefix string) []verbs.Counter {
	for i, v := range c {
		list = append(list, verbs.Counter{Name: prefix + reasonNames[i], Value: v})
	}
	return list
}
