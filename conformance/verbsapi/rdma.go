package verbsapi

import (
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// writeWR and readWR are requests between n bytes of the end's memory and its peer's.
func (e *end) writeWR(id uint64, off, n int, at verbs.Remote) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: e.mem.SGL(off, n), Remote: at, UD: e.to}
}

func (e *end) readWR(id uint64, off, n int, at verbs.Remote) verbs.SendWR {
	wr := e.writeWR(id, off, n, at)
	wr.Opcode = verbs.OpRDMARead
	return wr
}

// reads ends the case unless a read by an end brings what its peer has there.
func (e *end) reads(at verbs.Remote, want []byte) {
	const id = 78
	e.PostSend(e.qp, e.readWR(id, toOff, len(want), at))
	e.ExpectCompletion(id, verbs.WCSuccess)
	e.ExpectBytes(e.mem, toOff, want)
}

// refuses ends the case unless a request of the partner fails because the device
// refuses what it asks for.
//
// InfiniBand answers a request, so that it fails by itself. iWARP confirms no write:
// it may have completed by the time the refusal is there, which ends the connection;
// so a good read behind it has to fail. Reliable datagrams confirm that a write has
// arrived, not that it was carried out, and the device's queue pair fails.
func (l *link) refuses(what string, wr verbs.SendWR) {
	far := l.far
	far.PostSend(far.qp, wr)
	wc := far.NextCompletion()
	switch {
	case wc.Status != verbs.WCSuccess:
		return
	case byHand(far.Rig) || wr.Opcode != verbs.OpRDMAWrite:
		far.Fail("that a peer cannot "+what, "%s", rig.Describe(&wc))
	case far.qp.Type() == verbs.QPTypeUD:
		l.near.AwaitState(l.near.qp, failed)
		return
	}
	n, err := far.qp.PostSend([]verbs.SendWR{far.readWR(wr.WRID+1, toOff, 1, l.near.remote(0))})
	if n == 0 && err != nil {
		return // the connection has ended by now
	}
	wc = far.NextCompletion()
	far.Check(wc.Status != verbs.WCSuccess, "that a peer cannot "+what+", and that its connection ends", "%s", rig.Describe(&wc))
}

// spaced makes words of a part of an ID.
func spaced(s string) string { return strings.ReplaceAll(s, "-", " ") }

// soon is a time in which everything happens that waits for no timer and no peer.
const soon = 10 * time.Millisecond
