package dgiwarp

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// heap is the number of heap bytes in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// smallQP are the capabilities of the queue pairs of both comparisons.
var smallQP = verbs.QPCaps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}

// peerBytes is the memory that a queue pair of datagram-iWARP uses for each of n peers with which
// it has exchanged messages.
func peerBytes(t testing.TB, opt QPOptions, n int) float64 {
	t.Helper()
	const hosts = 20
	w, ds := netInWorld(t, 6, 1+hosts, impair.Config{}, Config{QP: opt})
	center := newEnd(t, ds[0], opt)
	var peers []Source
	for i, d := range ds[1:] {
		qps, serve := echoQPs(t, d, opt, n/hosts)
		peers = append(peers, qps...)
		w.Go(fmt.Sprint("peers", i), func(*sim.Proc) error { return serve() })
	}
	// The difference of the heap is the memory of both ends.
	exchange := func(from []Source) {
		for _, p := range from {
			for range 2 {
				center.recv(0, 8)
				center.send(p, 0, 8)
				for range 2 {
					center.AwaitSuccess()
				}
			}
		}
	}
	var before, after int64
	w.Go("center", func(*sim.Proc) error {
		warm := len(peers) / 10 // then buffers and tables have grown
		exchange(peers[:warm])
		before = heap()
		exchange(peers[warm:])
		after = heap()
		return nil
	})
	must.Do(t, w.RunPrograms())
	bytes := float64(after-before) / float64(len(peers)-len(peers)/10) / 2
	runtime.KeepAlive(ds)
	return bytes
}

// connectionBytes is the memory of a connected queue pair of soft-iWARP, without CQ, shared memory
// and TCP socket, and the part of it that the simulated stream uses.
func connectionBytes(t testing.TB, n int) (total, stream float64) {
	t.Helper()
	w, ports := providertest.Cable{Seed: 1}.Open(t)
	type side struct {
		dev verbs.Context
		PD  verbs.PD
		CQ  verbs.CQ
	}
	var sides [2]side
	for i, p := range ports {
		d := must.Get(softiwarp.InWorld(w, p, p.StreamHost(), softiwarp.Config{}))(t)
		sides[i].dev = d
		sides[i].PD = must.Get(d.AllocPD())(t)
		sides[i].CQ = must.Get(d.CreateCQ(verbs.CQInit{Depth: 1 << 12}))(t)
	}
	qp := func(s side) (verbs.QP, error) {
		return s.dev.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: s.PD, SendCQ: s.CQ, RecvCQ: s.CQ, Caps: smallQP})
	}
	warm := n / 10
	var before, after int64
	w.Go("server", func(*sim.Proc) error {
		m := must.Get(sides[1].dev.CM())(t)
		l := must.Get(m.Listen(netip.AddrPortFrom(addrB, 7174), verbs.PortSpaceTCP, 16))(t)
		for range n + warm {
			req := must.Get(l.GetRequest(verbs.Forever))(t)
			q := must.Get(qp(sides[1]))(t)
			must.Get(req.Accept(q, verbs.ConnParam{ResponderResources: 4, InitiatorDepth: 4}, verbs.Forever))(t)
		}
		return nil
	})
	w.Go("client", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond)
		m := must.Get(sides[0].dev.CM())(t)
		for i := range n + warm {
			if i == warm {
				before = heap()
			}
			q := must.Get(qp(sides[0]))(t)
			must.Get(m.Connect(q, netip.AddrPortFrom(addrB, 7174), verbs.ConnParam{ResponderResources: 4, InitiatorDepth: 4}, verbs.Forever))(t)
		}
		p.Sleep(time.Second)
		after = heap()
		return nil
	})
	must.Do(t, w.RunPrograms())
	total = float64(after-before) / float64(n) / 2
	stream = streamBytes(t, n)
	runtime.KeepAlive(sides)
	return total, stream
}

// streamBytes is the memory of one end of an idle simulated stream, which replaces a TCP socket.
func streamBytes(t testing.TB, n int) float64 {
	t.Helper()
	w, ports := providertest.Cable{Seed: 1}.Open(t)
	l := must.Get(ports[1].StreamHost().Listen(netip.AddrPortFrom(addrB, 9), n))(t)
	before := heap()
	var keep []any
	w.Go("dialer", func(p *sim.Proc) error {
		for range n {
			s := must.Get(ports[0].StreamHost().Dial(w.Now(), netip.AddrPortFrom(addrA, 0), netip.AddrPortFrom(addrB, 9)))(t)
			keep = append(keep, s)
		}
		p.Sleep(time.Second)
		for range n {
			s := must.Get(l.Accept(w.Now()))(t)
			keep = append(keep, s)
		}
		return nil
	})
	must.Do(t, w.RunPrograms())
	after := heap()
	runtime.KeepAlive(keep)
	return float64(after-before) / float64(n) / 2
}

// One queue pair serves all peers, with little memory for each. docs/dgiwarp.md has the figures
// that -v prints.
func TestMemoryPerPeerIsBounded(t *testing.T) {
	peers, conns := 10_000, 2_000
	if testing.Short() {
		peers, conns = 1_000, 200
	}
	ud, rd := peerBytes(t, unreliable, peers), peerBytes(t, reliable, peers)
	total, stream := connectionBytes(t, conns)
	t.Logf("bytes for each of %d peers: UD %.0f, RD %.0f; for each of %d soft-iWARP connections %.0f, of which simulated stream %.0f", peers, ud, rd, conns, total, stream)
	if ud > 64 {
		t.Errorf("UD: %.0f bytes a peer, want no state", ud)
	}
	if rd > 2048 {
		t.Errorf("RD: %.0f bytes a peer, the specification allows 2,048", rd)
	}
	if own := total - stream; own < 2*rd {
		t.Errorf("a connection takes %.0f bytes without its stream, a peer of RD %.0f: want at most half", own, rd)
	}
}
