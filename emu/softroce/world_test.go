package softroce

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce/cm"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

type (
	end       = providertest.End
	messenger = providertest.Messenger
)

var (
	addrA, addrB = providertest.AddrA, providertest.AddrB
	counter      = providertest.Counter
)

// pairInWorld opens two devices on one cable.
func pairInWorld(t testing.TB, seed uint64, spec impair.Config) (*sim.World, *Device, *Device) {
	t.Helper()
	w, ports := providertest.Cable{Seed: seed, Net: sim.NetConfig{Dissector: Dissector{}}, Up: spec}.Open(t)
	return w, openOn(t, w, ports[0], ports[0], Config{Name: "a"}), openOn(t, w, ports[1], ports[1], Config{Name: "b"})
}

// openOn opens a device on a port, through a link that may change its packets.
func openOn(t testing.TB, w *sim.World, p *sim.Port, l link.PacketLink, cfg Config) *Device {
	t.Helper()
	return must.Get(InWorld(w, p, l, cfg))(t)
}

// inWorld runs one program on each of two devices.
func inWorld(t *testing.T, onA, onB func(p *sim.Proc, d *Device)) {
	t.Helper()
	w, a, b := pairInWorld(t, 1, impair.Config{})
	w.Go("a", func(p *sim.Proc) error { onA(p, a); return nil })
	w.Go("b", func(p *sim.Proc) error { onB(p, b); return nil })
	must.Do(t, w.RunPrograms())
}

func idle(*sim.Proc, *Device) {}

func newEnd(t testing.TB, d *Device) *end {
	t.Helper()
	return providertest.NewEnd(t, d, verbs.QPTypeRC)
}

// acceptOne accepts one connection.
func acceptOne(t testing.TB, d *Device, at netip.AddrPort) (*end, verbs.Conn) {
	t.Helper()
	return providertest.Accept(t, d, at, func() {})
}

// echoOf exchanges n messages between two devices.
func echoOf(a, b *Device, n int) providertest.Echo {
	return providertest.Echo{Client: a, Server: b, To: b.cfg.Addrs[0], Messages: n, Start: time.Millisecond}
}

const toInit = verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags

// messengers makes two messengers that are connected without the connection manager, with receives
// posted.
func messengers(t testing.TB, da, db *Device, block bool) (a, b *messenger) {
	t.Helper()
	x, y := newEnd(t, da), newEnd(t, db)
	providertest.JoinRC(x, y)
	a, b = providertest.NewMessenger(x, 8, block, verbs.UD{}), providertest.NewMessenger(y, 8, block, verbs.UD{})
	must.Do(t, a.PostRecvs(32))
	must.Do(t, b.PostRecvs(32))
	return a, b
}

// memoryLink is a link that holds packets in memory until the peer receives them. Its cost
// is small compared to that of the device.
type memoryLink struct {
	peer  *memoryLink
	ds    [64]link.Datagram
	n     int
	waits chan struct{}
	sent  int
}

func newMemoryLinks() (a, b *memoryLink) {
	a, b = &memoryLink{waits: make(chan struct{})}, &memoryLink{waits: make(chan struct{})}
	a.peer, b.peer = b, a
	return a, b
}

func (s *memoryLink) Send(_ mono.Time, ds []link.Datagram) (int, error) {
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

func (s *memoryLink) Recv(_ mono.Time, ds []link.Datagram) (int, error) {
	n := copy(ds, s.ds[:s.n])
	s.n -= n
	return n, nil
}

// WaitReadable blocks until the end: the background goroutine must not use the link.
func (s *memoryLink) WaitReadable(time.Duration) error {
	<-s.waits
	return link.ErrClosed
}

func (s *memoryLink) Wake()    {}
func (s *memoryLink) MTU() int { return 9000 }
func (s *memoryLink) Features() link.Features {
	return link.Features{SeesHeader: true, SetsHeader: true}
}
func (s *memoryLink) Close() error { return nil }

// BenchmarkRoundTrip measures the CPU time of a ping-pong: half a round trip is one message
// sent, one empty poll, and one message received.
func BenchmarkRoundTrip(b *testing.B) {
	la, lb := newMemoryLinks()
	da := must.Get(OnLink(la, Config{Addrs: []netip.Addr{addrA}}))(b)
	db := must.Get(OnLink(lb, Config{Addrs: []netip.Addr{addrB}}))(b)
	time.Sleep(10 * time.Millisecond) // until both background goroutines sleep
	px, py := messengers(b, da, db, false)
	none := make([]verbs.WC, 1)
	half := func(from, to *messenger) {
		must.Do(b, from.PostSends(1))
		if n, err := from.CQ.Poll(none); n != 0 || err != nil {
			b.Fatal(n, err)
		}
		must.Get(to.AwaitMessages())(b)
	}
	b.ReportAllocs()
	sent := la.sent
	const batch = 64
	fastest, began := time.Hour, time.Now()
	for i := 0; b.Loop(); i++ {
		half(px, py)
		half(py, px)
		if i%batch == batch-1 {
			now := time.Now()
			fastest, began = min(fastest, now.Sub(began)), now
		}
	}
	b.ReportMetric(float64(fastest.Nanoseconds())/(2*batch), "min-ns/half")
	b.ReportMetric(float64(la.sent-sent)/float64(b.N), "packets/message")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2, "ns/half")
	close(la.waits)
	close(lb.waits)
	da.Close()
	db.Close()
}

func TestDatagramServiceIsResolved(t *testing.T) {
	const qkey = 0x01234567
	readyUD := func(d *Device) *end {
		e := providertest.NewEnd(t, d, verbs.QPTypeUD)
		e.ReadyUD(qkey)
		return e
	}
	inWorld(t, func(p *sim.Proc, d *Device) {
		p.Sleep(time.Millisecond)
		e := readyUD(d)
		must.Fail(t, "resolve of an unknown service", must.Err(d.cm.Resolve(netip.AddrPortFrom(addrB, 99), nil, verbs.Forever)), verbs.ErrRejected)
		peer := must.Get(d.cm.Resolve(netip.AddrPortFrom(addrB, 6), []byte("request"), verbs.Forever))(t)
		if peer.QKey != qkey || !bytes.HasPrefix(peer.PrivateData, []byte("reply")) {
			t.Errorf("resolved %+v", peer)
		}
		ah := must.Get(e.PD.CreateAH(peer.AH))(t)
		copy(e.Buf, "datagram")
		e.Do(verbs.SendWR{Opcode: verbs.OpSend, SGL: e.SGL(0, 8), UD: verbs.UD{AH: ah, QPN: peer.QPN, QKey: peer.QKey}})
	}, func(_ *sim.Proc, d *Device) {
		e := readyUD(d)
		e.Recv(0, 100)
		l := must.Get(d.cm.Listen(netip.AddrPortFrom(netip.IPv6Unspecified(), 6), verbs.PortSpaceUDP, 0))(t)
		req := must.Get(l.GetRequest(verbs.Forever))(t)
		must.Get(req.Accept(e.QP, verbs.ConnParam{PrivateData: []byte("reply")}, verbs.Forever))(t)
		wc := e.AwaitWC()
		if wc.ByteLen != verbs.GRHLen+8 || string(e.Buf[verbs.GRHLen:verbs.GRHLen+8]) != "datagram" {
			t.Errorf("received %+v %q", wc, e.Buf[:48])
		}
		attr, err := verbs.InitAHFromWC(1, 0, &wc, e.Buf)
		if err != nil || attr.GRH.DGID.Addr() != addrA {
			t.Errorf("the reply address is %v, %v", attr.GRH.DGID, err)
		}
	})
}

func TestDisconnectFlushesPeerQP(t *testing.T) {
	at := netip.AddrPortFrom(addrB, 7)
	inWorld(t, func(p *sim.Proc, d *Device) {
		p.Sleep(time.Millisecond)
		e, conn := providertest.Connect(t, d, at)
		p.Sleep(time.Millisecond)
		must.Do(t, conn.Disconnect())
		e.ExpectState(verbs.QPStateErr)
		must.Do(t, e.QP.Close())
		if len(d.cm.conns) != 0 {
			t.Errorf("%d connections still exist", len(d.cm.conns))
		}
	}, func(_ *sim.Proc, d *Device) {
		e, conn := acceptOne(t, d, at)
		must.Get(e.QP.PostRecv([]verbs.RecvWR{{WRID: 9, SGL: e.SGL(0, 8)}}))(t)
		if wc := e.ExpectWC(verbs.WCWRFlushErr); wc.WRID != 9 {
			t.Errorf("receive completed %+v", wc)
		}
		must.Do(t, conn.WaitDisconnect(verbs.Forever))
	})
}

// The CM disconnects by itself when a request of the peer shows that a connection is stale.
func TestUnansweredDREQEndsConnection(t *testing.T) {
	at := netip.AddrPortFrom(addrB, 7)
	inWorld(t, func(p *sim.Proc, d *Device) {
		p.Sleep(time.Millisecond)
		e, conn := providertest.Connect(t, d, at)
		d.cm.handleEvent(0, &cm.Event{Kind: cm.EventTimedOut, State: cm.StateDREQSent, Conn: conn.(*connection).id})
		must.Do(t, conn.WaitDisconnect(0))
		e.ExpectState(verbs.QPStateErr)
	}, func(_ *sim.Proc, d *Device) { acceptOne(t, d, at) })
}
