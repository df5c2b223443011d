package traffic

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Service is a transport service, as a lane uses it.
type Service uint8

// The services.
const (
	RC Service = iota + 1
	UC
	UD
	XRC
	RD // datagrams that are reliable
)

// String is the usual name.
func (s Service) String() string {
	if s < RC || s > RD {
		return fmt.Sprintf("Service(%d)", uint8(s))
	}
	return [...]string{"RC", "UC", "UD", "XRC", "RD"}[s-1]
}

// Reliable reports whether the service promises delivery.
func (s Service) Reliable() bool { return s == RC || s == XRC || s == RD }

// Datagram reports whether requests name their peer one by one, and receives begin
// with where a message came from.
func (s Service) Datagram() bool { return s == UD || s == RD }

// Workload is what two ends exchange. Both hold the same value.
type Workload struct {
	// Seed decides the requests, their bytes, and the rhythm of posting.
	Seed  uint64
	Lanes []Lane
	// CQs is how many completion queues each side spreads its lanes over.
	CQs int
	// SharedWords is how many words of each side's memory all reliable lanes of
	// the other work on with atomics, competing.
	SharedWords int
	// Wakeup is how an end learns of completions.
	Wakeup  Wakeup
	Network Network
	// Traits are those of the transport, the same on both sides. Fit makes lanes
	// that keep to them.
	Traits TransportTraits
}

// Network says what the network in between may do, and so what an unreliable
// service is excused for.
type Network struct {
	Loses      bool
	Duplicates bool
	Reorders   bool
	// GivesUp lets a reliable queue pair fail because its retries are exhausted.
	// Everything else that holds for it is still checked, up to the failure.
	GivesUp bool
}

// Wakeup is a way of learning of completions.
type Wakeup uint8

// Ways of learning of completions.
const (
	ByEvent     Wakeup = iota // completion events
	BySolicited               // events for solicited completions, and a look at times
	ByPolling                 // no events at all
)

// Pacing is how a side posts: up to Batch requests at a time, and then none for
// a time of up to Pause, by chance. A Batch of 0 is as many as there is room for.
type Pacing struct {
	Batch int
	Pause time.Duration
}

// Lane is one connection, or one pair of datagram queue pairs: traffic of one
// service both ways. What has two values is for the direction from A and from B.
type Lane struct {
	Service  Service
	Messages [2]int // work requests
	MinBytes int
	MaxBytes int
	// Mix are the operations, each as likely as the others; list one twice to
	// have it twice as often.
	Mix []verbs.WROpcode
	// SharedReceives takes receives from the side's one shared receive queue.
	SharedReceives bool
	// XRCQueues is how many XRC shared receive queues each side of an XRC lane
	// has.
	XRCQueues int
	// Windows is how many type 2 memory windows each side of an RC or RD lane opens
	// for the other, which may invalidate them.
	Windows int

	MTU      verbs.MTU
	FirstPSN [2]uint32
	// RdAtomic is how many reads and atomics a side may have outstanding, and
	// how many the other grants it.
	RdAtomic     [2]uint8
	Timeout      uint8
	RetryCnt     uint8
	RNRRetry     uint8
	MinRNRTimer  uint8
	TrafficClass uint8
	FlowLabel    uint32

	SendDepth, RecvDepth int
	MaxSGE, MaxInline    int
	// SignalEvery asks for about one completion in so many requests; 1 for all.
	SignalEvery int
	// TightReceives posts receives that hold their message exactly, where the
	// message is known.
	TightReceives          bool
	SendPacing, RecvPacing Pacing
}

// operations are what each service has.
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
	// Binds have no peer, and so no place in the order in which requests complete.
	RD: {
		verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpRDMAWrite, verbs.OpRDMAWriteImm, verbs.OpRDMARead,
		verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd,
	},
}

// Operations returns everything that lanes of a service can do. OpBindMW stands
// for a bind and the local invalidation that undoes it.
func Operations(s Service) []verbs.WROpcode { return slices.Clone(operations[s]) }

// NewLane returns a lane with every operation of the service and sensible
// values: n messages each way, of up to maxBytes.
func NewLane(s Service, n, maxBytes int) Lane {
	l := Lane{
		Service: s, Messages: [2]int{n, n}, MaxBytes: maxBytes, Mix: Operations(s),
		MTU: verbs.MTU1024, RdAtomic: [2]uint8{4, 4},
		Timeout: 10, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 5, // 4.2 ms, 0.06 ms
		SendDepth: 64, RecvDepth: 64, MaxSGE: 3, MaxInline: 64, SignalEvery: 3,
	}
	switch s {
	case RC, RD:
		l.Windows = 2
	case XRC:
		l.XRCQueues = 2
	case UC, UD:
		l.RecvDepth = max(n, 1) // nobody slows the sender down
	}
	return l
}

const (
	maxMessages = 1 << 20
	maxReceives = 1 << 16 // slots of a ring, in work request IDs
)

// Validate reports everything about w that cannot work.
func (w *Workload) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(w.Lanes) == 0 {
		bad("no lanes: there is nothing to do")
	}
	if w.CQs < 1 {
		bad("CQs is %d: at least 1 is needed", w.CQs)
	}
	if w.SharedWords < 0 {
		bad("SharedWords is %d", w.SharedWords)
	}
	if w.Traits.CompletesEarly && w.Network.GivesUp {
		bad("connections may give up, and completions do not prove that anything has arrived: what is left could not be judged")
	}
	for i := range w.Lanes {
		l := &w.Lanes[i]
		if l.Service == RD && w.Network.GivesUp {
			bad("lane %d (%v): it may give up, and its queue pair would not show that to the other direction", i, l.Service)
		}
		for _, err := range append(l.problems(), w.Traits.problems(l)...) {
			bad("lane %d (%v): %w", i, l.Service, err)
		}
	}
	return errors.Join(errs...)
}

func (l *Lane) problems() (errs []error) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	have := operations[l.Service]
	if have == nil {
		return []error{errors.New("no such service")}
	}
	for d, n := range l.Messages {
		check(n >= 0 && n <= maxMessages, "Messages[%d] is %d, not in 0..%d", d, n, maxMessages)
		check(!l.Service.Reliable() || l.RdAtomic[d] > 0, "RdAtomic[%d] is 0: reads could never start", d)
	}
	check(l.MinBytes >= 0 && l.MaxBytes >= l.MinBytes, "sizes %d..%d", l.MinBytes, l.MaxBytes)
	check(len(l.Mix) > 0, "Mix is empty: name some operations")
	for _, op := range l.Mix {
		check(slices.Contains(have, op), "Mix has %v, which the service has not", op)
	}
	check(l.SendDepth >= 2 && l.RecvDepth >= 1, "queues of %d sends and %d receives: at least 2 and 1 are needed", l.SendDepth, l.RecvDepth)
	check(l.RecvDepth <= maxReceives, "%d receives: at most %d are told apart", l.RecvDepth, maxReceives)
	check(l.MaxSGE >= 1, "MaxSGE is %d: at least 1 is needed", l.MaxSGE)
	check(l.SignalEvery >= 1, "SignalEvery is %d: 1 signals all", l.SignalEvery)
	check(l.Service != XRC || l.XRCQueues >= 1 && !l.SharedReceives, "an XRC lane has XRCQueues of its own, at least 1")
	check(l.Windows == 0 || l.Service == RC || l.Service == RD, "memory windows are for RC and RD lanes")
	check(l.MTU.Bytes() > 0, "MTU is %d, which is none of the five", uint32(l.MTU))
	check(l.Service != UD || l.MaxBytes <= l.MTU.Bytes(), "a datagram of %d bytes does not fit the MTU of %v", l.MaxBytes, l.MTU)
	return errs
}
