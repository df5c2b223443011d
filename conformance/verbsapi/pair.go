package verbsapi

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// qpPair is two connected queue pairs, or two UD queue pairs that address each other: one
// of the device under test, one of its partner.
type qpPair struct{ dut, partner *endpoint }

// endpoint is a queue pair and its application.
type endpoint struct {
	// Rig has the device, protection domain and CQ.
	*rig.Rig
	qp verbs.QP
	// mem is for sends and receives, and for remote access by the peer.
	mem *rig.Memory
	// sendCQ is the CQ of the queue pair's sends: that of the rig, unless modifyInit sets another.
	sendCQ verbs.CQ
	// udDest is the destination of datagrams; zero if connected.
	udDest verbs.UD
	// conn is set if the connection manager made the connection.
	conn verbs.Conn
}

// setup describes a pair. The zero value is an RC pair in RTS, or UD if the device has no RC.
type setup struct {
	qpType verbs.QPType
	// caps are the capacities of both queue pairs; smallCaps if zero.
	caps verbs.QPCaps
	// modifyInit changes the QPInit of the device under test.
	modifyInit func(*verbs.QPInit)
	// modifyAttr changes the attributes of a connection by ibv_modify_qp.
	modifyAttr func(*verbs.QPAttr)
	// access are the rights of the peer on queue pairs and memory; all if zero.
	access verbs.Access
}

// onPair makes the body of a case from a function that uses a pair.
func onPair(s setup, body func(*qpPair)) func(*conformance.Bench) error {
	return rig.PairBody(func(d *rig.Pair) { body(newPair(d, s)) })
}

// alsoOverRD returns each case twice: for RC and for reliable datagrams, which have the
// same operations and the same rules for memory.
func alsoOverRD(cases []conformance.Case) []conformance.Case {
	both := make([]conformance.Case, 0, 2*len(cases))
	for _, c := range cases {
		rd := c
		c.Needs |= verbs.CapRC
		c.Labels = append([]string{"service:rc"}, c.Labels...)
		rd.ID += "-over-rd"
		rd.Title += ", also over reliable datagrams"
		rd.Needs |= verbs.CapUD | verbs.CapRD
		rd.Setup.Reliable = true
		rd.Labels = []string{"service:rd"} // without a label "dangerous": no hardware has reliable datagrams
		both = append(both, c, rd)
	}
	return both
}

// newPair makes a queue pair on each of two devices, and connects them. s.modifyInit applies to
// that of the device under test only.
func newPair(d *rig.Pair, s setup) *qpPair {
	if s.qpType == 0 {
		s.qpType = rig.DefaultQPType(d.DUT)
	}
	l := &qpPair{dut: newEndpoint(d.DUT, &s), partner: newEndpoint(d.Partner, &setup{qpType: s.qpType, caps: s.caps, access: s.access})}
	l.connect(&s)
	return l
}

const (
	memLen = 16 << 10
	qKey   = 0x11335577
)

// smallCaps are capacities that every device supports.
var smallCaps = verbs.QPCaps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 2}

// newEndpoint makes a queue pair with the attributes of s, moves it to INIT, and registers its
// memory.
func newEndpoint(r *rig.Rig, s *setup) *endpoint {
	rights := s.access
	if rights == 0 {
		rights = rig.RemoteAccess(r)
	}
	e := &endpoint{Rig: r, mem: r.Memory(memLen, regionAccess(r, rights))}
	init := verbs.QPInit{Type: s.qpType, PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ, Caps: s.caps}
	if s.caps == (verbs.QPCaps{}) {
		init.Caps = smallCaps
	}
	if s.modifyInit != nil {
		s.modifyInit(&init)
	}
	e.qp, e.sendCQ = r.CreateQP(init), init.SendCQ
	r.ToInit(e.qp, rights, qKey)
	return e
}

// regionAccess returns the access flags of a region with these remote rights and local write, and
// with the right to bind windows if the device has windows.
func regionAccess(r *rig.Rig, remote verbs.Access) verbs.Access {
	a := remote | verbs.AccessLocalWrite
	if r.Caps&(verbs.CapMWType1|verbs.CapMWType2) != 0 {
		a |= verbs.AccessMWBind
	}
	return a
}

// newDefaultQP makes a small queue pair of the default type in RESET.
func newDefaultQP(r *rig.Rig) verbs.QP {
	return r.CreateQP(verbs.QPInit{Type: rig.DefaultQPType(r), PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ, Caps: smallCaps})
}

// connect moves both queue pairs to RTS: UD ones with the other as the destination, those of
// InfiniBand and RoCE by ibv_modify_qp, and others by the connection manager.
func (l *qpPair) connect(s *setup) {
	switch {
	case s.qpType == verbs.QPTypeUD:
		l.dut.addressTo(l.partner)
		l.partner.addressTo(l.dut)
	case isIB(l.dut.Rig):
		attr := connectionAttrs
		if s.modifyAttr != nil {
			s.modifyAttr(&attr)
		}
		l.dut.connectTo(l.partner, attr)
		l.partner.connectTo(l.dut, attr)
	default:
		l.connectByCM()
	}
}

// isIB reports whether the transport is InfiniBand or RoCE, whose queue pairs are connected by
// ibv_modify_qp. iWARP connections are TCP streams that only the connection manager can make.
func isIB(r *rig.Rig) bool { return r.Device.Info().Transport == verbs.TransportIB }

// requireModifyConnect ends the case as unsupported unless ibv_modify_qp can connect queue pairs.
func requireModifyConnect(r *rig.Rig) {
	requireIB(r, "queue pairs of this transport are connected by the connection manager only")
}

// requireIB ends the case as unsupported, for this reason, unless the transport is InfiniBand.
func requireIB(r *rig.Rig, reason string) {
	if !isIB(r) {
		rig.Abort(fmt.Errorf("%s: %w", reason, conformance.ErrBenchCannot))
	}
}

// connectionAttrs are the attributes of a connection, without the destination.
var connectionAttrs = verbs.QPAttr{
	PathMTU: verbs.MTU1024, RQPSN: 0x1000, SQPSN: 0x1000, MaxDestRdAtomic: 4, MaxRdAtomic: 4, MinRNRTimer: 12,
	Timeout: 14, RetryCnt: 7, RNRRetry: 7,
}

// connectTo connects a queue pair in INIT to another by ibv_modify_qp.
func (e *endpoint) connectTo(other *endpoint, attr verbs.QPAttr) {
	attr.DestQPN, attr.AH = other.qp.QPN(), e.PathTo(other.Rig)
	e.ToRTR(e.qp, attr)
	e.ToRTS(e.qp, attr)
}

// addressTo moves a UD queue pair from INIT to RTS, and sets the destination of its datagrams.
func (e *endpoint) addressTo(other *endpoint) {
	e.ToRTR(e.qp, verbs.QPAttr{})
	e.ToRTS(e.qp, verbs.QPAttr{SQPSN: 0x2000}) // any PSN will do: UD receivers do not check it
	ah := rig.Result(e.PD.CreateAH(e.PathTo(other.Rig)))(e, "an address handle")
	e.udDest = verbs.UD{AH: ah, QPN: other.qp.QPN(), QKey: qKey}
}

// connectByCM connects the queue pairs by the connection manager. The device under test listens at
// its first address.
func (l *qpPair) connectByCM() {
	h := &handshake{
		Pair:   &rig.Pair{DUT: l.dut.Rig, Partner: l.partner.Rig},
		active: l.partner, passive: l.dut, listener: listen(l.dut.Rig),
	}
	h.connect()
	l.dut.Must("a listener that can be closed", h.listener.Close())
}

// accept accepts the request of active. Over iWARP active sends empty WRITEs until Accept returns:
// siw of Linux ignores the first message of a stream if it arrives early, and then waits for
// another forever.
func (e *endpoint) accept(req verbs.ConnRequest, param verbs.ConnParam, active *endpoint) {
	retryAfter := 50 * time.Millisecond
	if isIB(e.Rig) {
		retryAfter = e.ResponseTimeout() // Accept must have returned by then, without WRITEs
	}
	task := e.Go("accept", func() (err error) {
		e.conn, err = req.Accept(e.qp, param, e.ResponseTimeout())
		return err
	})
	err := task.Wait(retryAfter)
	for until := e.Now() + e.ResponseTimeout(); errors.Is(err, verbs.ErrTimeout) && e.Now() < until; err = task.Wait(retryAfter) {
		// The WRITE needs no response. The post fails until the queue pair is connected.
		_, _ = active.qp.PostSend([]verbs.SendWR{{Opcode: verbs.OpRDMAWrite}})
	}
	e.Must("a request that can be accepted", err)
}

// connParam are the connection parameters of both ends.
var connParam = verbs.ConnParam{ResponderResources: 4, InitiatorDepth: 4, RetryCount: 7, RNRRetryCount: 7}

// listen makes the device listen at its first address.
func listen(r *rig.Rig) verbs.Listener { return listenAt(r, r.Local[0]) }

// listenAt makes a device listen at one of its addresses, at a free port.
func listenAt(r *rig.Rig, addr netip.Addr) verbs.Listener {
	const backlog = 4
	return rig.Result(r.CM().Listen(netip.AddrPortFrom(addr, 0), verbs.PortSpaceTCP, backlog))(r, "a listener")
}
