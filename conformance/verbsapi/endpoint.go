package verbsapi

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// errorOf returns the error of a call, without its other result.
func errorOf[A any](_ A, err error) error { return err }

// postErrorOf returns the error of a post that posted n requests, and another error if it failed and
// says that it has posted some.
func postErrorOf(n int, err error) error {
	if err != nil && n != 0 {
		return fmt.Errorf("%d requests are said to be posted, want none", n)
	}
	return err
}

// grhLen returns the length of the GRH area of receives: 0 unless the queue pair is UD.
func (e *endpoint) grhLen() int { return rig.GRHLen(e.qp) }

// sendWR returns a SEND of n bytes of the endpoint's memory from off on.
func (e *endpoint) sendWR(id uint64, off, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: e.mem.SGL(off, n), UD: e.udDest}
}

// sendOf returns a SEND of these SGEs.
func (e *endpoint) sendOf(id uint64, sgl ...verbs.SGE) verbs.SendWR {
	wr := e.sendWR(id, 0, 0)
	wr.SGL = sgl
	return wr
}

// postRecv posts a receive for n bytes of payload. They are stored at off of the endpoint's memory,
// after the GRH area.
func (e *endpoint) postRecv(id uint64, off, n int) {
	e.PostRecv(e.qp, id, e.mem.SGE(off, e.grhLen()+n))
}

// execute posts a request and returns its completion, which must have status success.
func (e *endpoint) execute(wr verbs.SendWR) verbs.WC {
	e.PostSend(e.qp, wr)
	return e.ExpectCompletion(wr.WRID, verbs.WCSuccess)
}

// expectMessage fails the case unless the next completion is that of receive id with the bytes
// want, after a GRH if the queue pair is UD. off is the offset of the receive in the endpoint's
// memory.
func (e *endpoint) expectMessage(id uint64, off int, want []byte) verbs.WC {
	wc := e.ExpectRecv(id, e.grhLen()+len(want))
	e.ExpectBytes(e.mem, off+e.grhLen(), want)
	return wc
}

// Default offsets of sends and receives in the endpoint's memory.
const (
	sendOffset = 0
	recvOffset = 8 << 10
)

// expectDelivery fails the case unless a message of n bytes is delivered. Both endpoints must have
// no outstanding requests. It returns the completion of the receive.
func expectDelivery(from, to *endpoint, n int) verbs.WC {
	return from.expectArrives(to, from.sendWR(77, sendOffset, n), from.mem.Buf[sendOffset:][:n])
}

// expectArrives fails the case unless a request of the endpoint succeeds, and its message arrives
// with the bytes want. It returns the completion of the receive.
func (e *endpoint) expectArrives(to *endpoint, wr verbs.SendWR, want []byte) verbs.WC {
	const id = 75
	to.postRecv(id, recvOffset, max(len(want), 64))
	e.execute(wr)
	return to.expectMessage(id, recvOffset, want)
}

// expectBothDeliver fails the case unless a message in each direction is delivered.
func (l *qpPair) expectBothDeliver() {
	expectDelivery(l.dut, l.partner, 24)
	expectDelivery(l.partner, l.dut, 40)
}

// expectFailure fails the case unless a request fails. It returns the completion, if there is one.
//
// A device may reject the post or complete the request with an error: manual pages and
// IBTA allow both for most errors.
func (e *endpoint) expectFailure(what string, wr verbs.SendWR) (verbs.WC, bool) {
	n, err := e.qp.PostSend([]verbs.SendWR{wr})
	if err != nil {
		e.Check(n == 0, what+" not to be posted if it is refused", "%d posted", n)
		return verbs.WC{}, false
	}
	wc := e.NextCompletion()
	e.Check(wc.WRID == wr.WRID && wc.Status != verbs.WCSuccess,
		fmt.Sprintf("%s (request %d) to be refused, or to complete with an error", what, wr.WRID), "%s", rig.Describe(&wc))
	return wc, true
}

// expectFailureStatus fails the case unless the device refuses the post of a request, or completes
// it with one of these statuses.
func (e *endpoint) expectFailureStatus(what string, wr verbs.SendWR, statuses ...verbs.WCStatus) {
	if wc, completed := e.expectFailure(what, wr); completed {
		e.Check(slices.Contains(statuses, wc.Status), fmt.Sprintf("%s to fail with one of %v", what, statuses), "%s", rig.Describe(&wc))
	}
}

// expectPostRefused fails the case unless a post fails with error reason, or with any error if
// reason is nil.
func (e *endpoint) expectPostRefused(what string, wr verbs.SendWR, reason error) {
	n, err := e.qp.PostSend([]verbs.SendWR{wr})
	e.MustFail(what, err, reason)
	e.Check(n == 0, "no request posted", "%d", n)
}

// writeWR returns a WRITE of n bytes of the endpoint's memory from off on to a remote address.
func (e *endpoint) writeWR(id uint64, off, n int, at verbs.Remote) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: e.mem.SGL(off, n), Remote: at, UD: e.udDest}
}

// readWR returns a READ of n bytes at a remote address into the endpoint's memory at recvOffset.
func (e *endpoint) readWR(id uint64, n int, at verbs.Remote) verbs.SendWR {
	wr := e.writeWR(id, recvOffset, n, at)
	wr.Opcode = verbs.OpRDMARead
	return wr
}

// expectRead fails the case unless a READ of the endpoint returns these bytes.
func (e *endpoint) expectRead(at verbs.Remote, want []byte) {
	const id = 78
	e.execute(e.readWR(id, len(want), at))
	e.ExpectBytes(e.mem, recvOffset, want)
}

// expectRefused fails the case unless the device refuses a request of the partner. what names the
// action of the request in messages, as in "read a closed region".
//
// Over InfiniBand the request fails. iWARP does not acknowledge WRITEs: the request may
// complete before the Terminate arrives, therefore a later valid READ must fail. Reliable
// datagrams acknowledge the arrival of a WRITE only, and the device's queue pair fails.
func (l *qpPair) expectRefused(what string, wr verbs.SendWR) {
	partner := l.partner
	partner.PostSend(partner.qp, wr)
	wc := partner.NextCompletion()
	switch {
	case wc.Status != verbs.WCSuccess:
		return
	case isIB(partner.Rig) || wr.Opcode != verbs.OpRDMAWrite:
		partner.Fail("a peer that cannot "+what, "%s", rig.Describe(&wc))
	case partner.qp.Type() == verbs.QPTypeUD:
		l.dut.AwaitState(l.dut.qp, errState)
		return
	}
	n, err := partner.qp.PostSend([]verbs.SendWR{partner.readWR(wr.WRID+1, 1, l.dut.mem.Remote(0))})
	if n == 0 && err != nil {
		return // the connection has ended
	}
	wc = partner.NextCompletion()
	partner.Check(wc.Status != verbs.WCSuccess, "a peer that cannot "+what+", and whose connection ends", "%s", rig.Describe(&wc))
}

// withSpaces replaces the hyphens in a part of a case ID by spaces.
func withSpaces(s string) string { return strings.ReplaceAll(s, "-", " ") }

// shortWait is long enough for reactions of a device that wait for no timer and no peer.
const shortWait = 10 * time.Millisecond
