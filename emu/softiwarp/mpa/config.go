package mpa

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
)

// Config is what a Conn is made of. The zero value asks for CRCs and no markers,
// speaks both revisions, and has no reads.
type Config struct {
	// Markers asks the peer for markers in what it sends. What the peer asks for
	// is always done.
	Markers bool
	// NoCRC does not ask for CRCs. They are used all the same if the peer asks.
	NoCRC bool
	// MaxRevision is the highest revision to speak; 0 means 2. With 1 there is no
	// enhanced start-up: an initiator does not ask for it, and a responder closes
	// on a Request of revision 2, as RFC 6581 expects of one that does not know
	// it.
	MaxRevision uint8
	// Consortium also talks to peers of revision 0, those of the RDMA
	// Consortium: with markers and CRCs both ways. DDP and RDMAP then have
	// version 0 too: see Params.Revision.
	Consortium bool

	// MSS is the effective segment size of the stream; 0 means 1448. SetMSS
	// follows a path that changes.
	MSS int

	// IRD and ORD, for an initiator, are the reads that it takes at a time and
	// those that it wants to have under way. wire.DepthNotNegotiated leaves one
	// to the applications. (A responder's are in AcceptParam.)
	IRD, ORD uint16
	// MaxIRD is how far IRD may be raised if the peer wants more reads under way
	// than that. It never lowers IRD: 0 means that nothing is raised. (But a
	// responder that takes a read as RTR has an IRD of at least 1.)
	MaxIRD uint16
	// PeerToPeer, for an initiator, asks for the model in which its first message
	// is an RTR of no octets, so that the responder may be the first to send.
	PeerToPeer bool
	// RTR is which RTRs this side can send or take; 0 means all.
	RTR RTR
	// PrivateData is what an initiator's Request carries for the application. It
	// is copied.
	PrivateData []byte

	// RequestTimeout is how long a responder waits for the whole of the Request,
	// ReplyTimeout how long an initiator waits for that of the Reply. 0 means 5 s
	// and 10 s, less than 0 for ever.
	RequestTimeout, ReplyTimeout time.Duration
	// FPDUTimeout is how long nothing may come when an FPDU has come in part; 0 is
	// for ever. RFC 5044 knows no such limit, and TCP may need minutes to repair a
	// loss. But a ULPDU_Length that was damaged on the way, unnoticed by TCP, can
	// claim more octets than the peer has sent: its CRC is looked at when they are
	// there, and if the peer has no more to say that is never.
	FPDUTimeout time.Duration

	// QueueFPDUs and QueueOctets bound what Room lets be queued: 64 FPDUs and
	// 256 KiB if 0. The octets may be exceeded by one FPDU.
	QueueFPDUs, QueueOctets int
	// Align gives out one FPDU at a time, so that TCP can start each of them in a
	// segment of its own. It costs a write for every FPDU. Without it, FPDUs of
	// full length align by themselves.
	Align bool

	// Counters, if not nil, are counted in; connections may share them.
	Counters *Counters
	Defects  Defects
}

const (
	defaultMSS            = 1448 // Ethernet, IPv4, TCP with timestamps
	defaultRequestTimeout = 5 * time.Second
	defaultReplyTimeout   = 10 * time.Second
	defaultQueueFPDUs     = 64
	defaultQueueOctets    = 256 << 10
)

// enhanced reports whether an initiator has anything to ask for that takes the
// enhanced start-up. If not, RFC 6581 forbids its format.
func (c *Config) enhanced() bool {
	wanted := c.PeerToPeer || c.IRD != wire.DepthNotNegotiated || c.ORD != wire.DepthNotNegotiated
	return wanted && c.MaxRevision != wire.RevisionRFC5044
}

// MaxPrivateData is how much private data an initiator's Request has room for.
func (c *Config) MaxPrivateData() int { return maxPrivateData(c.enhanced()) }

func maxPrivateData(enhanced bool) int {
	if enhanced {
		return wire.MaxPrivateData - wire.EnhancedLen
	}
	return wire.MaxPrivateData
}

// Validate says what in c cannot be done.
func (c *Config) Validate() error {
	switch {
	case c.MaxRevision > wire.RevisionEnhanced:
		return fmt.Errorf("mpa: MaxRevision %d: only 1 and 2 are known", c.MaxRevision)
	case c.PeerToPeer && c.MaxRevision == wire.RevisionRFC5044:
		return errors.New("mpa: PeerToPeer needs revision 2: raise MaxRevision")
	case max(c.IRD, c.ORD, c.MaxIRD) > wire.DepthNotNegotiated:
		return fmt.Errorf("mpa: IRD %d, ORD %d, MaxIRD %d: at most %d can be sent", c.IRD, c.ORD, c.MaxIRD, wire.DepthNotNegotiated-1)
	case c.RTR&^rtrAll != 0:
		return fmt.Errorf("mpa: RTR %#x: no such types", uint8(c.RTR))
	}
	return checkPrivateData(c.PrivateData, c.enhanced())
}

func checkPrivateData(private []byte, enhanced bool) error {
	if limit := maxPrivateData(enhanced); len(private) > limit {
		return fmt.Errorf("%w: %d octets, where at most %d fit", ErrPrivateData, len(private), limit)
	}
	return nil
}

func (c Config) withDefaults() Config {
	orInt := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	orTime := func(v *time.Duration, def time.Duration) {
		if *v == 0 {
			*v = def
		}
	}
	orInt(&c.MSS, defaultMSS)
	orInt(&c.QueueFPDUs, defaultQueueFPDUs)
	orInt(&c.QueueOctets, defaultQueueOctets)
	orTime(&c.RequestTimeout, defaultRequestTimeout)
	orTime(&c.ReplyTimeout, defaultReplyTimeout)
	if c.MaxRevision == 0 {
		c.MaxRevision = wire.RevisionEnhanced
	}
	if c.RTR == 0 {
		c.RTR = rtrAll
	}
	if c.Counters == nil {
		c.Counters = new(Counters)
	}
	return c
}
