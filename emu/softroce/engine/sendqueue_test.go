package engine

import (
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// The ring of a send queue grows while requests are queued, also if they wrap around its end. It keeps
// their order, gather lists and inline data.
func TestSendQueueGrowsWithRequests(t *testing.T) {
	const first = 10 // so that the ring wraps when it grows
	d := newDuplex(t, ICRCChecked, verbs.MTU1024)
	if n := len(d.qa.sq.ring); n > first*2 {
		t.Fatalf("the ring of an unused queue has %d entries", n)
	}
	for from, to := 0, first; from < 256; from, to = to, min(256, to+100) {
		for i := from; i < to; i++ {
			must.Do(t, d.qb.PostRecv(&verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{d.b.sge(i, 1)}}))
			wr := verbs.SendWR{WRID: uint64(i), Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
			if i%2 == 0 {
				d.a.mem[i] = byte(i) + 1
				wr.SGL = []verbs.SGE{d.a.sge(i, 1)}
			} else {
				wr.Flags |= verbs.SendInline
				wr.Inline = []byte{byte(i) + 1}
			}
			must.Do(t, d.qa.PostSend(d.now, &wr, Refs{}))
		}
		d.exchange()
		for i, wc := range d.a.poll() {
			if wc.WRID != uint64(from+i) || wc.Status != verbs.WCSuccess {
				t.Errorf("completion %d: %+v", from+i, wc)
			}
		}
		if to == 256 {
			break
		}
	}
	for i := range 256 {
		if got := d.b.mem[i]; got != byte(i)+1 {
			t.Errorf("message %d has %d, want %d", i, got, byte(i)+1)
		}
	}
}
