package random

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Service is the transport service of a connection.
type Service uint8

// Transport services.
const (
	RC Service = iota + 1
	UC
	UD
	XRC
	RD // reliable datagrams
)

// String is the usual name.
func (s Service) String() string {
	if s < RC || s > RD {
		return fmt.Sprintf("Service(%d)", uint8(s))
	}
	return [...]string{"RC", "UC", "UD", "XRC", "RD"}[s-1]
}

// Reliable reports whether the service guarantees delivery.
func (s Service) Reliable() bool { return s == RC || s == XRC || s == RD }

// Datagram reports whether every request has a destination and every receive a GRH.
func (s Service) Datagram() bool { return s == UD || s == RD }

// Workload is the traffic between two ends. Both have the same value.
type Workload struct {
	// Seed determines the requests, their data and their pacing.
	Seed  uint64
	Conns []Conn
	// CQs is the number of completion queues of each side.
	CQs int
	// SharedWords is the number of words of each side on which all reliable connections of the
	// other side execute atomics concurrently.
	SharedWords int
	// Wakeup is how an end learns of completions.
	Wakeup  Wakeup
	Network Network
	// Traits are the transport's, the same on both sides. Adapt makes connections fit them.
	Traits traffic.TransportTraits
}

// Network lists the faults that the network may have; an unreliable service allows them.
type Network struct {
	Loses      bool
	Duplicates bool
	Reorders   bool
	// GivesUp permits a reliable queue pair to exhaust its retries. All its other
	// guarantees are checked up to the failure.
	GivesUp bool
}

// Wakeup is how an end learns of completions.
type Wakeup uint8

// Ways to learn of completions.
const (
	ByEvent     Wakeup = iota // completion events
	BySolicited               // events for solicited completions, and polling from time to time
	ByPolling                 // no events
)

// Pacing is how a side posts: up to Batch requests at a time (0: as many as fit), and then
// none for a random time of up to Pause.
type Pacing struct {
	Batch int
	Pause time.Duration
}

// Conn is a connection, or a pair of datagram queue pairs, with traffic in both directions.
// Fields with two values are for the direction from A and from B.
type Conn struct {
	Service            Service
	Messages           [2]int // work requests
	MinBytes, MaxBytes int
	// Mix is the list of operations, drawn with equal probability. An operation may be
	// listed more than once.
	Mix []verbs.WROpcode
	// SharedReceives uses the SRQ that the connections of a side share.
	SharedReceives bool
	// XRCQueues is the number of XRC SRQs of each side.
	XRCQueues int
	// Windows is the number of type 2 memory windows that each side of an RC or RD connection
	// opens for the other, which may invalidate them.
	Windows int
	// TightReceives posts receives of exactly the size of their message, where it is known.
	TightReceives bool

	QPAttr
	Queues
}

// QPAttr are attributes of the queue pairs of a connection, as in an ibv_qp_attr.
type QPAttr struct {
	MTU      verbs.MTU
	FirstPSN [2]uint32
	// RdAtomic is the number of outstanding reads and atomics of a side.
	RdAtomic     [2]uint8
	Timeout      uint8
	RetryCnt     uint8
	RNRRetry     uint8
	MinRNRTimer  uint8
	TrafficClass uint8
	FlowLabel    uint32
}

// Queues are the sizes of the queues of a connection, and how they are filled.
type Queues struct {
	SendDepth, RecvDepth int
	MaxSGE, MaxInline    int
	// SignalEvery is the average number of requests per signaled one; 1: all are.
	SignalEvery            int
	SendPacing, RecvPacing Pacing
}

// operations are the operations of each service.
var operations = map[Service][]verbs.WROpcode{
	RC: {
		verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm, verbs.OpRDMARead,
		verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpAtomicWrite, verbs.OpFlush, verbs.OpBindMW,
	},
	UC: {verbs.OpSend, verbs.OpSendImm, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm},
	UD: {verbs.OpSend, verbs.OpSendImm},
	XRC: {
		verbs.OpSend, verbs.OpSendImm, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm, verbs.OpRDMARead,
		verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpAtomicWrite, verbs.OpFlush,
	},
	// A bind has no peer, and therefore no place in the completion order.
	RD: {
		verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm, verbs.OpRDMARead,
		verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd,
	},
}

// Operations returns the operations of a service. OpBindMW stands for a bind and the local
// invalidation of the window.
func Operations(s Service) []verbs.WROpcode { return slices.Clone(operations[s]) }

// NewConn returns a connection with every operation of the service and default values: n messages
// in each direction, of up to maxBytes.
func NewConn(s Service, n, maxBytes int) Conn {
	c := Conn{
		Service: s, Messages: [2]int{n, n}, MaxBytes: maxBytes, Mix: Operations(s),
		QPAttr: QPAttr{
			MTU: verbs.MTU1024, RdAtomic: [2]uint8{4, 4},
			Timeout: 10, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 5, // an ACK timeout of 4.2 ms, and an RNR timer of 0.06 ms
		},
		Queues: Queues{SendDepth: 64, RecvDepth: 64, MaxSGE: 3, MaxInline: 64, SignalEvery: 3},
	}
	switch s {
	case RC, RD:
		c.Windows = 2
	case XRC:
		c.XRCQueues = 2
	case UC, UD:
		c.RecvDepth = max(n, 1) // nothing slows the sender down
	}
	return c
}

const (
	maxMessages = 1 << 20
	maxReceives = 1 << 16 // slots of a ring, in work request IDs
)

// Validate returns an error for every setting that is out of range or contradicts another, or that
// the transport (w.Traits) does not support.
func (w *Workload) Validate() error {
	var errs problems
	errs.check(len(w.Conns) > 0, "no connections")
	errs.check(w.CQs >= 1, "CQs is %d: at least 1 is needed", w.CQs)
	errs.check(w.SharedWords >= 0, "SharedWords is %d: it cannot be negative", w.SharedWords)
	errs.check(!w.Traits.CompletesEarly || !w.Network.GivesUp,
		"GivesUp with CompletesEarly: without proof of delivery the memory cannot be checked")
	for i := range w.Conns {
		c := &w.Conns[i]
		errs.check(c.Service != RD || !w.Network.GivesUp,
			"connection %d (%v): GivesUp: a failure would not show in the other direction", i, c.Service)
		for _, err := range append(c.problems(), c.transportProblems(&w.Traits)...) {
			errs = append(errs, fmt.Errorf("connection %d (%v): %w", i, c.Service, err))
		}
	}
	return errors.Join(errs...)
}

// problems is a list of errors.
type problems []error

// check adds an error unless ok.
func (p *problems) check(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// problems lists the fields of the connection with values that cannot work.
func (c *Conn) problems() (errs problems) {
	have := operations[c.Service]
	if have == nil {
		return []error{errors.New("no such service")}
	}
	for d, n := range c.Messages {
		errs.check(n >= 0 && n <= maxMessages, "Messages[%d] is %d, not in 0..%d", d, n, maxMessages)
		errs.check(!c.Service.Reliable() || c.RdAtomic[d] > 0, "RdAtomic[%d] is 0: reads could never start", d)
	}
	errs.check(c.MinBytes >= 0 && c.MaxBytes >= c.MinBytes, "sizes %d..%d: the first may be neither negative nor greater than the second", c.MinBytes, c.MaxBytes)
	errs.check(len(c.Mix) > 0, "Mix is empty: name some operations")
	for _, op := range c.Mix {
		errs.check(slices.Contains(have, op), "Mix has %v, which the service lacks", op)
	}
	// One request of each half of the send queue is signaled: see drawFlags.
	errs.check(c.SendDepth >= 2 && c.RecvDepth >= 1,
		"queues of %d sends and %d receives: at least 2 and 1 are needed", c.SendDepth, c.RecvDepth)
	errs.check(c.RecvDepth <= maxReceives, "%d receives: at most %d are possible", c.RecvDepth, maxReceives)
	errs.check(c.MaxSGE >= 1, "MaxSGE is %d: at least 1 is needed", c.MaxSGE)
	errs.check(c.SignalEvery >= 1, "SignalEvery is %d: 1 signals all", c.SignalEvery)
	errs.check(c.Service != XRC || c.XRCQueues >= 1 && !c.SharedReceives,
		"an XRC connection has XRCQueues of its own, at least 1")
	errs.check(c.Windows == 0 || c.Service == RC || c.Service == RD, "memory windows are for RC and RD connections")
	errs.check(c.MTU.Bytes() > 0, "MTU is %d, which is not a valid MTU", uint32(c.MTU))
	errs.check(c.Service != UD || c.MaxBytes <= c.MTU.Bytes(),
		"a datagram of %d bytes does not fit the MTU of %v", c.MaxBytes, c.MTU)
	return errs
}

// Adapt makes a connection suitable for the transport: it removes missing operations, and memory
// windows if binds are missing. Without RNR all receives fit into the queue and are posted at the
// start.
func (c *Conn) Adapt(traits *traffic.TransportTraits) {
	lacks := func(op verbs.WROpcode) bool { return slices.Contains(traits.MissingOps, op) }
	c.Mix = slices.DeleteFunc(slices.Clone(c.Mix), lacks)
	if lacks(verbs.OpBindMW) {
		c.Windows = 0
	}
	if traits.NoRNR {
		c.RecvDepth, c.RecvPacing = max(c.Messages[A], c.Messages[B], 1), Pacing{}
	}
}

// transportProblems lists what a connection needs and the transport lacks.
func (c *Conn) transportProblems(traits *traffic.TransportTraits) (errs problems) {
	for _, op := range traits.MissingOps {
		errs.check(!slices.Contains(c.Mix, op), "Mix has %v, which the transport lacks", op)
	}
	errs.check(!traits.ConnectsByCM || c.Service == RC, "the transport connects queue pairs through a connection manager, which is for RC only")
	messages := max(c.Messages[A], c.Messages[B])
	errs.check(!traits.NoRNR || c.RecvDepth >= messages,
		"%d receives for %d messages: a message without a posted receive ends the connection", c.RecvDepth, messages)
	return errs
}
