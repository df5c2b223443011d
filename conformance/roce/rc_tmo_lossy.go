package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// goBack is a sound responder: it takes requests in the order of their PSNs, tells by
// one NAK where something is missing, and answers duplicates again. It has memory to
// read from, and looks at no data.
type goBack struct {
	mtu    int
	memory []byte // from theirs on

	expected ib.PSN
	msn      uint32
	naked    bool // the gap has been told
	// last is the PSN of the newest request that ACKs are for.
	last ib.PSN
	// originals are the results of atomics, by PSN.
	originals map[ib.PSN]uint64
}

func newGoBack(first ib.PSN, mtu int) *goBack {
	return &goBack{
		mtu: mtu, memory: rig.Pattern(4096, 0xc3),
		expected: first, last: first.Add(-1), originals: make(map[ib.PSN]uint64),
	}
}

// answer returns what to answer a request with.
func (g *goBack) answer(p ib.Packet) []ib.Packet {
	ahead := p.PSN().Sub(g.expected)
	switch {
	case ahead > 0 && g.naked:
		return nil
	case ahead > 0:
		g.naked = true
		return []ib.Packet{ib.Nak(g.expected, ib.NakSequence, g.msn)}
	case ahead == 0:
		g.execute(p)
	}
	info, _ := p.Info()
	switch {
	case info.Kind == ib.KindReadRequest:
		at := int(*p.RETH.VA - theirs.Addr)
		return ib.ReadResponses(p.PSN(), g.msn, g.memory[at:][:*p.RETH.Len], g.mtu)
	case info.Kind == ib.KindAtomic:
		return []ib.Packet{ib.AtomicAck(p.PSN(), g.msn, g.originals[p.PSN()])}
	case ahead < 0 || p.HasAckReq():
		return []ib.Packet{ib.Ack(g.last, g.msn)}
	}
	return nil
}

// execute takes note of a new request.
func (g *goBack) execute(p ib.Packet) {
	info, _ := p.Info()
	g.naked = false
	if info.Position == ib.Last || info.Position == ib.Only {
		g.msn++
	}
	if info.Kind == ib.KindReadRequest {
		g.expected = g.expected.Add(ib.Packets(int(*p.RETH.Len), g.mtu))
		return
	}
	if info.Kind == ib.KindAtomic {
		g.originals[p.PSN()] = uint64(len(g.originals))
	}
	g.last, g.expected = p.PSN(), p.PSN().Add(1)
}

// lossyLink is a sound responder behind a link that loses packets in both directions.
type lossyLink struct {
	*conn
	peer    *goBack
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
	return &lossyLink{c, newGoBack(c.sq(0), c.attr.PathMTU.Bytes()), percent, percent > 5, make(map[uint64]int)}
}

func (l *lossyLink) loses() bool { return l.Rand.IntN(100) < l.percent }

// run has the device post requests, of which each has to complete in its turn.
func (l *lossyLink) run() {
	const requests = 120
	progress := l.Now()
	for done, posted := 0, 0; done < requests; {
		for ; posted < requests && posted-done < lossyWindow; posted++ {
			l.PostSend(l.qp, l.request(posted))
		}
		// To look for completions may take longer than packets do: who looked after each
		// would answer later and later, and be asked again and again.
		for range 16 {
			if !l.answers() {
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
				l.ExpectBytes(l.own, at, l.peer.memory[:lossyReadLen])
				clear(l.own.Buf[at:][:lossyReadLen])
			}
			done++
			progress = l.Now()
		}
		l.Check(l.Now()-progress < l.ResponseTimeout(), "every request to complete", "none in %v, %d of %d before", l.ResponseTimeout(), done, requests)
	}
}

// answers answers the next packet, if there is one soon, and reports whether there was.
func (l *lossyLink) answers() bool {
	p, ok := l.next(soon)
	if !ok || l.loses() {
		return ok
	}
	for _, a := range l.peer.answer(p) {
		if !l.loses() {
			l.send(a)
		}
	}
	return true
}

// request is one of several kinds.
func (l *lossyLink) request(i int) verbs.SendWR {
	id := uint64(i)
	switch i % 4 {
	case 0:
		return l.sending(id, 16)
	case 1:
		return l.writing(id, 2500)
	case 2:
		if l.Caps.Has(verbs.CapAtomics) {
			wr := l.adding(id)
			wr.SGL = l.pieces(sink-8, 8)
			return wr
		}
	}
	l.reads[id] = sink + len(l.reads)%lossyPlaces*lossyReadLen
	wr := l.reading(id, lossyReadLen)
	wr.SGL = l.pieces(l.reads[id], lossyReadLen)
	return wr
}
