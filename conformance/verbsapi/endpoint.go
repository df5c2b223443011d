package verbsapi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// grhLen is how many bytes come before the payload in a receive: datagrams bring the
// address that they are from.
func (e *endpoint) grhLen() int {
	if e.qp.Type() == verbs.QPTypeUD {
		return verbs.GRHLen
	}
	return 0
}

// sendWR is a request to send n bytes of the end's memory, from off on.
func (e *endpoint) sendWR(id uint64, off, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: e.mem.SGL(off, n), UD: e.udDest}
}

// recvWR is a receive for n bytes. What it brings is to be found at off, behind the
// area.
func (e *endpoint) recvWR(id uint64, off, n int) verbs.RecvWR {
	return verbs.RecvWR{WRID: id, SGL: e.mem.SGL(off, e.grhLen()+n)}
}

// postRecv posts a receive for n bytes that has to be taken.
func (e *endpoint) postRecv(id uint64, off, n int) { e.PostRecv(e.qp, id, e.recvWR(id, off, n).SGL...) }

// expectMessage ends the case unless the next completion is of this receive, with these bytes at
// off.
func (e *endpoint) expectMessage(id uint64, off int, want []byte) verbs.WC {
	wc := e.ExpectRecv(id, e.grhLen()+len(want))
	e.ExpectBytes(e.mem, off+e.grhLen(), want)
	return wc
}

// Where in its memory an end sends from and receives to, if nothing else matters.
const (
	sendOffset = 0
	recvOffset = 8 << 10
)

// expectDelivery ends the case unless a message of n bytes gets from one end to the other.
// Both must have nothing outstanding.
func (l *qpPair) expectDelivery(from, to *endpoint, n int) {
	const id = 77
	to.postRecv(id, recvOffset, n)
	from.PostSend(from.qp, from.sendWR(id, sendOffset, n))
	from.ExpectCompletion(id, verbs.WCSuccess)
	to.expectMessage(id, recvOffset, from.mem.Buf[sendOffset:][:n])
}

// expectBothDeliver ends the case unless messages get from each end to the other.
func (l *qpPair) expectBothDeliver() {
	l.expectDelivery(l.dut, l.partner, 24)
	l.expectDelivery(l.partner, l.dut, 40)
}

// remote names n bytes of the end's memory to its peer.
func (e *endpoint) remote(off int) verbs.Remote { return e.mem.Remote(off) }

// toState takes the end's queue pair to a state that needs no attributes.
func (e *endpoint) toState(state verbs.QPState) { toState(e.Rig, e.qp, state) }

// queryQP returns the attributes of a queue pair.
func queryQP(r *rig.Rig, qp verbs.QP) verbs.QPAttr {
	a, err := qp.Query()
	r.Must("a queue pair that can be queried", err)
	return a
}

// queryDevice returns the attributes of the device.
func queryDevice(r *rig.Rig) verbs.DeviceAttr {
	a, err := r.Device.QueryDevice()
	r.Must("a device that can be queried", err)
	return a
}

// queryPort returns the attributes of the device's first port.
func queryPort(r *rig.Rig) verbs.PortAttr {
	p, err := r.Device.QueryPort(1)
	r.Must("a port that can be queried", err)
	return p
}

// expectFailure ends the case unless a request that the device need not refuse at once is
// refused, or completes in error. It returns the completion, if there was one.
//
// A device may know that a request is wrong when it is posted, or find out when its
// turn comes: manual pages and IBTA allow both for most errors.
func (e *endpoint) expectFailure(what string, wr verbs.SendWR) (verbs.WC, bool) {
	n, err := e.qp.PostSend([]verbs.SendWR{wr})
	if err != nil {
		e.Check(n == 0, what+" not to be taken if it is refused", "%d taken", n)
		return verbs.WC{}, false
	}
	wc := e.NextCompletion()
	if wc.WRID != wr.WRID || wc.Status == verbs.WCSuccess {
		e.Fail(fmt.Sprintf("%s (request %d) to be refused, or to complete in error", what, wr.WRID), "%s", rig.Describe(&wc))
	}
	return wc, true
}

// expectFailureStatus is fails for errors whose completion has to have one of these statuses.
func (e *endpoint) expectFailureStatus(what string, wr verbs.SendWR, statuses ...verbs.WCStatus) {
	wc, completed := e.expectFailure(what, wr)
	for _, s := range statuses {
		if !completed || wc.Status == s {
			return
		}
	}
	e.Fail(fmt.Sprintf("%s to fail with one of %v", what, statuses), "%s", rig.Describe(&wc))
}

// expectPostRefused ends the case unless a request is refused when it is posted.
func (e *endpoint) expectPostRefused(what string, wr verbs.SendWR, reason error) {
	n, err := e.qp.PostSend([]verbs.SendWR{wr})
	e.MustFail(what, err, reason)
	e.Check(n == 0, "no request taken", "%d", n)
}
