package rig

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// Pair is the device under test and a partner of the same kind, each with an application.
type Pair struct{ DUT, Partner *Rig }

// PairBody returns a case's body that calls a function with a new Pair, as [Body] does with a Rig.
func PairBody(body func(*Pair)) func(*conformance.Bench) error {
	return Body(func(r *Rig) { body(NewPair(r)) })
}

// NewPair opens a second device, the partner of the device of r. The Rig (application) on the
// partner has the same clock and the same record of events as r.
func NewPair(r *Rig) *Pair {
	other, err := r.Partner()
	if err != nil {
		Abort(fmt.Errorf("the partner: %w", err))
	}
	bench := *r.Bench
	bench.Device = other
	return &Pair{DUT: r, Partner: New(&bench)}
}

// SetPath sets the impairments (losses, delays) between the two devices. It returns false if the
// test bench has no means to impair packets, and ends the case at any other error.
func (p *Pair) SetPath(path conformance.Path) bool {
	err := p.DUT.SetPath(path)
	if err != nil && !errors.Is(err, conformance.ErrBenchCannot) {
		Abort(fmt.Errorf("set the impairments of the path: %w", err))
	}
	return err == nil
}

// Endpoint is a queue pair with its completion queue.
type Endpoint struct {
	*Rig
	QP verbs.QP
	// CQ is for sends and receives.
	CQ verbs.CQ
	// dest is the destination of datagrams; the zero value if the QP is connected.
	dest verbs.UD
}

// Limits of a queue pair: outstanding requests or receives, and outstanding RDMA READs and atomics.
const (
	QueueDepth  = 64
	MaxRdAtomic = 8
)

// Connect creates a queue pair on each device, ready to send to the other. RC queue pairs are
// connected by attributes over InfiniBand and RoCE, and by the connection manager over iWARP.
// Devices without RC get UD queue pairs.
func (p *Pair) Connect() (dut, partner *Endpoint) {
	dut, partner = newEndpoint(p.DUT), newEndpoint(p.Partner)
	switch {
	case dut.QP.Type() == verbs.QPTypeUD:
		dut.readyForDatagrams(partner)
		partner.readyForDatagrams(dut)
	case dut.Device.Info().Transport == verbs.TransportIB:
		dut.connectByAttributes(partner)
		partner.connectByAttributes(dut)
	default:
		connectByCM(dut, partner)
	}
	return dut, partner
}

const qKey = 0x0a0b0c0d

// newEndpoint creates a CQ, and a queue pair in INIT: RC if the device has it, else UD.
func newEndpoint(r *Rig) *Endpoint {
	const enoughForBothQueues = 4 * QueueDepth
	e := &Endpoint{Rig: r, CQ: r.CreateCQ(verbs.CQInit{Depth: enoughForBothQueues})}
	e.QP = r.CreateQP(verbs.QPInit{
		Type: DefaultQPType(r), PD: r.PD, SendCQ: e.CQ, RecvCQ: e.CQ,
		Caps: verbs.QPCaps{MaxSendWR: QueueDepth, MaxRecvWR: QueueDepth, MaxSendSGE: 1, MaxRecvSGE: 2},
	})
	r.ToInit(e.QP, RemoteAccess(r), qKey)
	return e
}

// DefaultQPType returns RC, or UD if the device has no RC.
func DefaultQPType(r *Rig) verbs.QPType {
	if r.Caps.Has(verbs.CapRC) {
		return verbs.QPTypeRC
	}
	return verbs.QPTypeUD
}

// RemoteAccess returns all remote access rights that the device supports.
func RemoteAccess(r *Rig) verbs.Access {
	a := verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	if r.Caps.Has(verbs.CapAtomics) {
		a |= verbs.AccessRemoteAtomic
	}
	return a
}

// RemoteMemory registers n bytes with all access rights.
func RemoteMemory(r *Rig, n int) *Memory { return r.Memory(n, RemoteAccess(r)|verbs.AccessLocalWrite) }

// ackTimeout is the local ACK timeout: 4.096 µs · 2^8 = 1 ms, for fast recovery. RNR retries are
// few as well, so cases must post receives before messages.
const ackTimeout = 8

// connectByAttributes connects the queue pair in INIT to that of another endpoint, by attributes
// of ibv_modify_qp. Each side derives the initial PSNs of both from their queue pair numbers.
func (e *Endpoint) connectByAttributes(other *Endpoint) {
	const rnrTimer, busyHostTimeout = 12, 14 // encoded: 0.64 ms, 67 ms
	a := verbs.QPAttr{
		PathMTU: verbs.MTU1024, DestQPN: other.QP.QPN(), AH: e.PathTo(other.Rig),
		RQPSN: initialPSN(other.QP), SQPSN: initialPSN(e.QP),
		MaxDestRdAtomic: MaxRdAtomic, MaxRdAtomic: MaxRdAtomic, MinRNRTimer: rnrTimer, Timeout: ackTimeout, RetryCnt: 7, RNRRetry: 3,
	}
	if !e.Virtual {
		a.Timeout = busyHostTimeout // in real time, delays of a busy host must not look like losses
	}
	e.ToRTR(e.QP, a)
	e.ToRTS(e.QP, a)
}

// initialPSN returns the PSN that a queue pair starts to send with, in 24 bits.
func initialPSN(qp verbs.QP) uint32 { return uint32(qp.QPN()) << 8 & 0xffffff }

// readyForDatagrams moves a UD queue pair to RTS and sets its destination.
func (e *Endpoint) readyForDatagrams(other *Endpoint) {
	e.ToRTR(e.QP, verbs.QPAttr{})
	e.ToRTS(e.QP, verbs.QPAttr{})
	ah := Result(e.PD.CreateAH(e.PathTo(other.Rig)))(e, "an address handle")
	e.dest = verbs.UD{AH: ah, QPN: other.QP.QPN(), QKey: qKey}
}

// GRHLen returns the number of bytes before the payload in a receive buffer of a queue pair.
func GRHLen(qp verbs.QP) int {
	if qp.Type() == verbs.QPTypeUD {
		return verbs.GRHLen
	}
	return 0
}

// PostSend posts send requests to the other endpoint; the device must accept all of them. It sets
// their datagram destination, which is zero for a connected queue pair.
func (e *Endpoint) PostSend(wrs ...verbs.SendWR) {
	for i := range wrs {
		wrs[i].UD = e.dest
	}
	n := Result(e.QP.PostSend(wrs))(e, "send requests that the device accepts")
	e.Check(n == len(wrs), fmt.Sprintf("%d requests accepted", len(wrs)), "%d", n)
}

// NextSuccess waits for the next completion, which must be successful. It polls often:
// cases about ordering depend on when a completion is seen.
func (e *Endpoint) NextSuccess() verbs.WC {
	const maxInterval = 50 * time.Microsecond
	wc, ok := e.pollCQ(e.CQ, e.ResponseTimeout(), maxInterval)
	e.Check(ok, "a completion", "none in %v", e.ResponseTimeout())
	e.Check(wc.Status == verbs.WCSuccess, "a success", "%s", Describe(&wc))
	return wc
}

// connectByCM connects two queue pairs by the connection manager. The partner is the
// passive side: some devices, when passive, deliver the first message of the active side
// only when the second arrives.
func connectByCM(dut, partner *Endpoint) {
	const anyPort, backlog = 0, 1
	addr := partner.GIDEntry().GID.Addr()
	listener := Result(partner.CM().Listen(netip.AddrPortFrom(addr, anyPort), verbs.PortSpaceTCP, backlog))(partner, "a listener")
	param := verbs.ConnParam{ResponderResources: MaxRdAtomic, InitiatorDepth: MaxRdAtomic, RetryCount: 7, RNRRetryCount: 7}
	connecting := dut.Go("the device connects", func() error {
		return Catch(func() {
			Result(dut.CM().Connect(dut.QP, listener.Addr(), param, dut.ResponseTimeout()))(dut, "a connection")
		})
	})
	req := Result(listener.GetRequest(partner.ResponseTimeout()))(partner, "a request for a connection")
	Result(req.Accept(partner.QP, param, partner.ResponseTimeout()))(partner, "a connection that can be accepted")
	dut.Must("a connection", connecting.Wait(dut.ResponseTimeout()))
	partner.Must("a listener that can be closed", listener.Close())
}
