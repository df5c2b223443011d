package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/rcpeer"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// lossyLink is a sound responder behind a link that loses packets in both directions.
type lossyLink struct {
	*conn
	peer    *rcpeer.Responder
	percent int
	// mayFail is set where so much is lost that a request may be lost as often as it is
	// repeated.
	mayFail bool
	// reads has where in own the data of each READ go.
	reads map[uint64]int
}

// READs over a lossy link: how long they are, how many places they go to by turns, and how
// many requests may be posted that have not been seen to complete. At most every second of
// these is a READ, so that each has its place to itself until its data has been looked at.
const (
	lossyReadLen = 1500
	lossyPlaces  = 5
	lossyWindow  = 8
)

func newLossyLink(c *conn, percent int) *lossyLink {
	return &lossyLink{c, rcpeer.NewResponder(c.devicePSN(0), c.attr.PathMTU.Bytes(), peerRemote.Addr), percent, percent > 5, make(map[uint64]int)}
}

func (l *lossyLink) drops() bool { return l.Rand.IntN(100) < l.percent }

// run has the device post requests, of which each has to complete in its turn.
func (l *lossyLink) run() {
	const requests = 120
	progress := l.Now()
	for done, posted := 0, 0; done < requests; {
		for ; posted < requests && posted-done < lossyWindow; posted++ {
			l.PostSend(l.qp, l.newRequest(posted))
		}
		// To look for completions may take longer than packets do: who looked after each
		// would answer later and later, and be asked again and again.
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
			// A request may fail for good, by eight losses in a row; the rest is
			// flushed then, which is an end as well. Where one packet in twenty is lost
			// that does not happen: eight of those are one in 10^8.
			l.Check(wc.WRID == uint64(done), "completions in the order of posting", "%d at position %d", wc.WRID, done)
			l.Check(wc.Status == verbs.WCSuccess || l.mayFail, fmt.Sprintf("success on a link that loses %d %%", l.percent), "%s", rig.Describe(&wc))
			if at, ok := l.reads[wc.WRID]; ok && wc.Status == verbs.WCSuccess {
				l.ExpectBytes(l.localMem, at, l.peer.Memory[:lossyReadLen])
				clear(l.localMem.Buf[at:][:lossyReadLen])
			}
			done++
			progress = l.Now()
		}
		l.Check(l.Now()-progress < l.ResponseTimeout(), "every request to complete", "none in %v, %d of %d before", l.ResponseTimeout(), done, requests)
	}
}

// serveNext answers the next packet, if there is one soon, and reports whether there was.
func (l *lossyLink) serveNext() bool {
	p, ok := l.nextPacket(shortWait)
	if !ok || l.drops() {
		return ok
	}
	for _, a := range l.peer.Respond(p) {
		if !l.drops() {
			l.send(a)
		}
	}
	return true
}

// newRequest is one of several kinds.
func (l *lossyLink) newRequest(i int) verbs.SendWR {
	id := uint64(i)
	switch i % 4 {
	case 0:
		return l.sendWR(id, 16)
	case 1:
		return l.writeWR(id, 2500)
	case 2:
		if l.Caps.Has(verbs.CapAtomics) {
			wr := l.fetchAddWR(id)
			wr.SGL = l.localSGL(sinkOffset-8, 8)
			return wr
		}
	}
	l.reads[id] = sinkOffset + len(l.reads)%lossyPlaces*lossyReadLen
	wr := l.readWR(id, lossyReadLen)
	wr.SGL = l.localSGL(l.reads[id], lossyReadLen)
	return wr
}
