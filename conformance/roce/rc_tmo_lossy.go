package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// lossyLink is a connection to a correct responder over a link that drops packets in both
// directions.
type lossyLink struct {
	*Conn
	peer    *Responder
	percent int
	// mayFail is set if so many packets are dropped that the retries of a request may be
	// exhausted.
	mayFail bool
	// reads has the offset in localMem for each READ.
	reads map[uint64]int
}

// READs use lossySlots buffers in turn. At most every second of lossyWindow outstanding
// requests is a READ, therefore a buffer is checked before it is reused.
const (
	lossyReadLen = 1500
	lossySlots   = 5
	lossyWindow  = 8
)

func newLossyLink(c *Conn, percent int) *lossyLink {
	return &lossyLink{c, NewResponder(c.DevicePSN(0), c.Attr.PathMTU.Bytes(), PeerMemory.Addr), percent, percent > 5, make(map[uint64]int)}
}

func (l *lossyLink) drops() bool { return l.Rand.IntN(100) < l.percent }

// run has the device post 120 requests, and fails the case unless they complete in order.
func (l *lossyLink) run() {
	const requests = 120
	progress := l.Now()
	for done, posted := 0, 0; done < requests; {
		for ; posted < requests && posted-done < lossyWindow; posted++ {
			l.PostSend(l.QP, l.newRequest(posted))
		}
		// Serve several packets for each poll: polling may take so long that the device
		// times out.
		for range 16 {
			if !l.serveNext() {
				break
			}
		}
		for {
			wc, ok := l.PollCompletion(0)
			if !ok {
				break
			}
			// A request fails after eight losses in a row, and later ones are flushed.
			// With a loss of 5 % the probability is 10^-8.
			l.Check(wc.WRID == uint64(done), "completions in the order of posting", "%d at position %d", wc.WRID, done)
			l.Check(wc.Status == verbs.WCSuccess || l.mayFail, fmt.Sprintf("success on a link that loses %d %%", l.percent), "%s", rig.Describe(&wc))
			if at, ok := l.reads[wc.WRID]; ok && wc.Status == verbs.WCSuccess {
				l.ExpectBytes(l.LocalMem, at, l.peer.Memory[:lossyReadLen])
				clear(l.LocalMem.Buf[at:][:lossyReadLen])
			}
			done++
			progress = l.Now()
		}
		l.Check(l.Now()-progress < l.ResponseTimeout(), "every request to complete", "none in %v, %d of %d before", l.ResponseTimeout(), done, requests)
	}
}

// serveNext waits briefly for a packet of the device, and answers it unless it is
// dropped. It reports whether there was one.
func (l *lossyLink) serveNext() bool {
	p, ok := l.nextPacket(shortWait)
	if !ok || l.drops() {
		return ok
	}
	for _, a := range l.peer.Respond(p) {
		if !l.drops() {
			l.Send(a)
		}
	}
	return true
}

// newRequest returns the i-th request. The kinds alternate.
func (l *lossyLink) newRequest(i int) verbs.SendWR {
	id := uint64(i)
	switch i % 4 {
	case 0:
		return l.SendWR(id, 16)
	case 1:
		return l.WriteWR(id, 2500)
	case 2:
		if l.Caps.Has(verbs.CapAtomics) {
			wr := l.fetchAddWR(id)
			wr.SGL = l.localSGL(SinkOffset-8, 8)
			return wr
		}
	}
	l.reads[id] = SinkOffset + len(l.reads)%lossySlots*lossyReadLen
	wr := l.ReadWR(id, lossyReadLen)
	wr.SGL = l.localSGL(l.reads[id], lossyReadLen)
	return wr
}
