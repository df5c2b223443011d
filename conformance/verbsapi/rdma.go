package verbsapi

import (
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// writeWR and readWR are requests between n bytes of the end's memory and its peer's.
func (e *endpoint) writeWR(id uint64, off, n int, at verbs.Remote) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: e.mem.SGL(off, n), Remote: at, UD: e.udDest}
}

func (e *endpoint) readWR(id uint64, off, n int, at verbs.Remote) verbs.SendWR {
	wr := e.writeWR(id, off, n, at)
	wr.Opcode = verbs.OpRDMARead
	return wr
}

// expectRead ends the case unless a read by an end brings what its peer has there.
func (e *endpoint) expectRead(at verbs.Remote, want []byte) {
	const id = 78
	e.PostSend(e.qp, e.readWR(id, recvOffset, len(want), at))
	e.ExpectCompletion(id, verbs.WCSuccess)
	e.ExpectBytes(e.mem, recvOffset, want)
}

// expectRefused ends the case unless a request of the partner fails because the device
// refuses what it asks for.
//
// InfiniBand answers a request, so that it fails by itself. iWARP confirms no write:
// it may have completed by the time the refusal is there, which ends the connection;
// so a good read behind it has to fail. Reliable datagrams confirm that a write has
// arrived, not that it was carried out, and the device's queue pair fails.
func (l *qpPair) expectRefused(what string, wr verbs.SendWR) {
	partner := l.partner
	partner.PostSend(partner.qp, wr)
	wc := partner.NextCompletion()
	switch {
	case wc.Status != verbs.WCSuccess:
		return
	case isIB(partner.Rig) || wr.Opcode != verbs.OpRDMAWrite:
		partner.Fail("that a peer cannot "+what, "%s", rig.Describe(&wc))
	case partner.qp.Type() == verbs.QPTypeUD:
		l.dut.AwaitState(l.dut.qp, errState)
		return
	}
	n, err := partner.qp.PostSend([]verbs.SendWR{partner.readWR(wr.WRID+1, recvOffset, 1, l.dut.remote(0))})
	if n == 0 && err != nil {
		return // the connection has ended by now
	}
	wc = partner.NextCompletion()
	partner.Check(wc.Status != verbs.WCSuccess, "that a peer cannot "+what+", and that its connection ends", "%s", rig.Describe(&wc))
}

// withSpaces makes words of a part of an ID.
func withSpaces(s string) string { return strings.ReplaceAll(s, "-", " ") }

// shortWait is a time in which everything happens that waits for no timer and no peer.
const shortWait = 10 * time.Millisecond
