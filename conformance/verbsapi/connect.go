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

// connect moves both queue pairs to RTS.
func (l *qpPair) connect(s *setup) {
	switch {
	case s.qpType == verbs.QPTypeUD:
		l.dut.addressTo(l.partner)
		l.partner.addressTo(l.dut)
	case isIB(l.dut.Rig):
		attr := linkAttrs()
		if s.modifyAttr != nil {
			s.modifyAttr(&attr)
		}
		l.dut.connectTo(l.partner, attr)
		l.partner.connectTo(l.dut, attr)
	default:
		l.connectByCM()
	}
}

// isIB reports whether the transport is InfiniBand, whose queue pairs are connected by
// ibv_modify_qp. iWARP connections are TCP streams that only the connection manager can
// make.
func isIB(r *rig.Rig) bool { return r.Device.Info().Transport == verbs.TransportIB }

// requireModifyConnect ends the case as unsupported unless queue pairs can be connected
// by ibv_modify_qp.
func requireModifyConnect(r *rig.Rig) {
	requireIB(r, "queue pairs of this transport are connected by the connection manager only")
}

// requireIB ends the case as unsupported unless the transport is InfiniBand. elsewhere is
// the reason.
func requireIB(r *rig.Rig, elsewhere string) {
	if !isIB(r) {
		rig.Abort(fmt.Errorf("%s: %w", elsewhere, conformance.ErrBenchCannot))
	}
}

// linkAttrs returns the attributes of a connection, without the destination.
func linkAttrs() verbs.QPAttr {
	return verbs.QPAttr{
		PathMTU: verbs.MTU1024, RQPSN: 0x1000, SQPSN: 0x1000, MaxDestRdAtomic: 4, MaxRdAtomic: 4, MinRNRTimer: 12,
		Timeout: 14, RetryCnt: 7, RNRRetry: 7,
	}
}

// connectTo connects a queue pair in INIT to another by ibv_modify_qp.
func (e *endpoint) connectTo(other *endpoint, attr verbs.QPAttr) {
	attr.DestQPN, attr.AH = other.qp.QPN(), e.pathTo(other)
	e.ToRTR(e.qp, attr)
	e.ToRTS(e.qp, attr)
}

// pathTo returns the path to another endpoint.
func (e *endpoint) pathTo(other *endpoint) verbs.AHAttr { return e.PathTo(other.Rig) }

// addressTo moves a UD queue pair from INIT to RTS, and sets the destination of its
// datagrams.
func (e *endpoint) addressTo(other *endpoint) {
	e.ToRTR(e.qp, verbs.QPAttr{})
	e.ToRTS(e.qp, verbs.QPAttr{SQPSN: 0x2000})
	ah, err := e.PD.CreateAH(e.pathTo(other))
	e.Must("an address handle", err)
	e.udDest = verbs.UD{AH: ah, QPN: other.qp.QPN(), QKey: qKey}
}

// connectByCM connects the two by the connection manager. The device under test listens,
// at an address that the bench knows.
func (l *qpPair) connectByCM() {
	listener := listen(l.dut.Rig)
	partner := l.dut.Go("partner connects", func() (err error) {
		cm, err := l.partner.Device.CM()
		if err == nil {
			l.partner.conn, err = cm.Connect(l.partner.qp, listener.Addr(), connParam, l.dut.ResponseTimeout())
		}
		return err
	})
	req, err := listener.GetRequest(l.dut.ResponseTimeout())
	l.dut.Must("a request for a connection", err)
	l.dut.accept(req, connParam, l.partner)
	l.dut.Must("a connection", partner.Wait(l.dut.ResponseTimeout()))
	l.dut.Must("a listener that can be closed", listener.Close())
}

// accept accepts the partner's request. siw of Linux ignores the first message of a
// stream if it arrives before the accept is complete, and then waits forever. Therefore
// the partner sends empty WRITEs until the accept returns. Cases of MPA test this
// behaviour.
func (e *endpoint) accept(req verbs.ConnRequest, param verbs.ConnParam, from *endpoint) {
	unheard := 50 * time.Millisecond
	if isIB(e.Rig) {
		unheard = e.ResponseTimeout()
	}
	task := e.Go("accept", func() (err error) {
		e.conn, err = req.Accept(e.qp, param, e.ResponseTimeout())
		return err
	})
	err := task.Wait(unheard)
	for until := e.Now() + e.ResponseTimeout(); errors.Is(err, verbs.ErrTimeout) && e.Now() < until; err = task.Wait(unheard) {
		from.sendEmptyWrite()
	}
	e.Must("a request that can be accepted", err)
}

// sendEmptyWrite posts an unsignaled WRITE of no bytes, which needs no response.
func (e *endpoint) sendEmptyWrite() {
	// The post fails until the partner is connected.
	_, _ = e.qp.PostSend([]verbs.SendWR{{Opcode: verbs.OpRDMAWrite}})
}

// connParam are the connection parameters of both ends.
var connParam = verbs.ConnParam{ResponderResources: 4, InitiatorDepth: 4, RetryCount: 7, RNRRetryCount: 7}

// listen makes the device listen at its first address.
func listen(r *rig.Rig) verbs.Listener {
	l, err := r.CM().Listen(netip.AddrPortFrom(r.Local[0], 0), verbs.PortSpaceTCP, 4)
	r.Must("a listener", err)
	return l
}
