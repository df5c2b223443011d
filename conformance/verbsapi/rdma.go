package verbsapi

import (
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// writeWR returns a WRITE of n bytes of the endpoint's memory from off on.
func (e *endpoint) writeWR(id uint64, off, n int, at verbs.Remote) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: e.mem.SGL(off, n), Remote: at, UD: e.udDest}
}

// readWR returns a READ of n bytes from the remote address at into the endpoint's memory
// at offset off.
func (e *endpoint) readWR(id uint64, off, n int, at verbs.Remote) verbs.SendWR {
	wr := e.writeWR(id, off, n, at)
	wr.Opcode = verbs.OpRDMARead
	return wr
}

// expectRead fails the case unless a READ of the endpoint returns these bytes.
func (e *endpoint) expectRead(at verbs.Remote, want []byte) {
	const id = 78
	e.complete(e.readWR(id, recvOffset, len(want), at))
	e.ExpectBytes(e.mem, recvOffset, want)
}

// expectRefused fails the case unless the device refuses a request of the partner.
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
	n, err := partner.qp.PostSend([]verbs.SendWR{partner.readWR(wr.WRID+1, recvOffset, 1, l.dut.remote(0))})
	if n == 0 && err != nil {
		return // the connection has ended
	}
	wc = partner.NextCompletion()
	partner.Check(wc.Status != verbs.WCSuccess, "a peer that cannot "+what+", and whose connection ends", "%s", rig.Describe(&wc))
}

// withSpaces replaces the hyphens in a part of an ID.
func withSpaces(s string) string { return strings.ReplaceAll(s, "-", " ") }

// shortWait is long enough for everything that waits for no timer and no peer.
const shortWait = 10 * time.Millisecond
