package mpa

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// Config configures a Conn. The zero value requests CRCs and no markers, supports both
// revisions, and allows no reads.
type Config struct {
	// Markers requests markers in the peer's FPDUs. Those that the peer requests are always sent.
	Markers bool
	// NoCRC does not request CRCs. They are used nevertheless if the peer requests them.
	NoCRC bool
	// MaxRevision is the highest MPA revision to use; 0 means 2. With 1 there is no enhanced
	// connection setup: an initiator does not request it, and a responder closes the stream
	// after a Request of revision 2, as RFC 6581 expects.
	MaxRevision uint8
	// Consortium also accepts peers of revision 0, defined by the RDMA Consortium, with markers and
	// CRCs in both directions. DDP and RDMAP then have version 0 too.
	Consortium bool

	// MSS is the effective segment size of the stream; 0 means 1448. SetMSS changes it.
	MSS int

	// IRD and ORD are the read depths that an initiator offers and requests; those of a responder
	// are in AcceptParam. wire.DepthNotNegotiated leaves a depth to the applications.
	IRD, ORD uint16
	// MaxIRD is the limit up to which IRD is raised if the peer requests more. It never lowers IRD;
	// 0 raises nothing. A responder that accepts a read as RTR has an IRD of at least 1.
	MaxIRD uint16
	// PeerToPeer makes an initiator request the peer-to-peer model: its first message is an
	// RTR of no octets, after which the responder may send.
	PeerToPeer bool
	// RTR is the set of RTRs that this side can send or receive; 0 means all.
	RTR RTR
	// PrivateData is the private data in the Request of an initiator. It is copied.
	PrivateData []byte

	// RequestTimeout limits how long a responder waits for the complete Request, ReplyTimeout an
	// initiator for the Reply. 0 means 5 s and 10 s, a negative value no limit.
	RequestTimeout, ReplyTimeout time.Duration
	// FPDUTimeout limits the time without input while an FPDU is incomplete; 0 means no limit. RFC
	// 5044 has none, and TCP may need minutes to recover from a loss. But a corrupt ULPDU_Length
	// can claim more octets than the peer ever sends; then no CRC is checked.
	FPDUTimeout time.Duration

	// QueueFPDUs and QueueOctets are the limits at which Room reports false; 0 means 64 FPDUs
	// and 256 KiB. One FPDU may exceed the octets.
	QueueFPDUs, QueueOctets int
	// Align makes Output return one FPDU at a time, so that TCP can start each in a new segment, at
	// the cost of a write for each. Else only FPDUs of full length are aligned.
	Align bool

	// Counters may be nil or shared by several connections.
	Counters *Counters
	// Policy has the decisions in which real devices differ.
	Policy Policy
}

const defaultMSS = 1448 // Ethernet, IPv4, TCP with timestamps

// enhanced reports whether an initiator sends an enhanced Request (revision 2): only if it needs
// one, as RFC 6581 demands, and if MaxRevision allows it.
func (c *Config) enhanced() bool {
	wanted := c.PeerToPeer || c.IRD != wire.DepthNotNegotiated || c.ORD != wire.DepthNotNegotiated
	return wanted && c.MaxRevision != wire.RevisionRFC5044
}

// Validate returns an error if c is invalid.
func (c *Config) Validate() error {
	switch {
	case c.MaxRevision > wire.RevisionEnhanced:
		return fmt.Errorf("mpa: MaxRevision %d: only 1 and 2 are known", c.MaxRevision)
	case c.PeerToPeer && c.MaxRevision == wire.RevisionRFC5044:
		return errors.New("mpa: PeerToPeer needs revision 2: raise MaxRevision")
	case max(c.IRD, c.ORD, c.MaxIRD) > wire.DepthNotNegotiated: // itself valid: without negotiation
		return fmt.Errorf("mpa: IRD %d, ORD %d, MaxIRD %d: at most %d can be sent", c.IRD, c.ORD, c.MaxIRD, wire.DepthNotNegotiated-1)
	case c.RTR&^rtrAll != 0:
		return fmt.Errorf("mpa: RTR %#x has unknown bits", uint8(c.RTR))
	}
	return checkPrivateData(c.PrivateData, c.enhanced())
}

// checkPrivateData returns an error if the application's private data is too long for a Request
// or Reply with or without enhanced data.
func checkPrivateData(private []byte, enhanced bool) error {
	limit := wire.MaxPrivateData
	if enhanced {
		limit -= wire.EnhancedLen
	}
	if len(private) > limit {
		return fmt.Errorf("%w: %d octets, where at most %d fit", ErrPrivateData, len(private), limit)
	}
	return nil
}

// withDefaults returns c with the defaults for unset fields, except MSS, for which SetMSS has the
// default. A negative size counts as unset.
func (c Config) withDefaults() Config {
	c.QueueFPDUs = cmp.Or(max(c.QueueFPDUs, 0), 64)
	c.QueueOctets = cmp.Or(max(c.QueueOctets, 0), 256<<10)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 5*time.Second)
	c.ReplyTimeout = cmp.Or(c.ReplyTimeout, 10*time.Second)
	c.MaxRevision = cmp.Or(c.MaxRevision, wire.RevisionEnhanced)
	c.RTR = cmp.Or(c.RTR, rtrAll)
	if c.Counters == nil {
		c.Counters = new(Counters)
	}
	return c
}
