package softroce

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// shelf is a link on which packets lie until the other end takes them: it costs
// next to nothing, so that what is measured over it is the device.
type shelf struct {
	peer  *shelf
	ds    [64]link.Datagram
	n     int
	waits chan struct{}
	sent  int
}

func newShelves() (a, b *shelf) {
	a, b = &shelf{waits: make(chan struct{})}, &shelf{waits: make(chan struct{})}
	a.peer, b.peer = b, a
	return a, b
}

func (s *shelf) Send(_ mono.Time, ds []link.Datagram) (int, error) {
	to := s.peer
	n := min(len(ds), len(to.ds)-to.n)
	for i := range n {
		d := &to.ds[to.n]
		payload := append(d.Payload[:0], ds[i].Payload...)
		*d = ds[i]
		d.Payload = payload
		to.n++
	}
	s.sent += n
	return n, nil
}

func (s *shelf) Recv(_ mono.Time, ds []link.Datagram) (int, error) {
	n := copy(ds, s.ds[:s.n])
	s.n -= n
	return n, nil
}

// WaitReadable sleeps for good: the background must not touch the shelf.
func (s *shelf) WaitReadable(time.Duration) error {
	<-s.waits
	return link.ErrClosed
}

func (s *shelf) Wake()                   {}
func (s *shelf) MTU() int                { return 9000 }
func (s *shelf) Features() link.Features { return link.Features{SeesHeader: true, SetsHeader: true} }
func (s *shelf) Close() error            { return nil }

// BenchmarkTurn is what a ping-pong costs in this program: half a turn is one
// message sent, one poll that finds nothing, and one message received.
func BenchmarkTurn(b *testing.B) {
	la, lb := newShelves()
	da := must.Get(OnLink(la, Config{Addrs: []netip.Addr{addrA}}))(b)
	db := must.Get(OnLink(lb, Config{Addrs: []netip.Addr{addrB}}))(b)
	time.Sleep(10 * time.Millisecond) // until both backgrounds sleep
	px, py := players(b, da, db, false)
	none := make([]verbs.WC, 1)
	half := func(from, to *player) {
		must.Do(b, from.Serve(1))
		if n, err := from.CQ.Poll(none); n != 0 || err != nil {
			b.Fatal(n, err)
		}
		must.Get(to.Await())(b)
	}
	b.ReportAllocs()
	sent := la.sent
	for b.Loop() {
		half(px, py)
		half(py, px)
	}
	b.ReportMetric(float64(la.sent-sent)/float64(b.N), "packets/message")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2, "ns/half")
	close(la.waits)
	close(lb.waits)
	da.Close()
	db.Close()
}
