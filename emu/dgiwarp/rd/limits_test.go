package rd

import (
	"errors"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// A receiver without room for another peer refuses it, and accepts it after another was removed.
func TestFullTableRefusesNewPeers(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	sink := n.host(Config{Limits: Limits{Peers: 2}})
	for range 2 {
		n.host(Config{}).send(sink, 10)
	}
	n.sleep(time.Millisecond)
	late := n.host(Config{})
	late.send(sink, 10)
	n.run(20*time.Second, func() bool { return len(late.failed) > 0 })
	if !errors.Is(late.failed[0], ErrTimeout) || sink.layer.Count.PeersRefused == 0 {
		t.Errorf("failed with %v, %d refused", late.failed[0], sink.layer.Count.PeersRefused)
	}
	n.sleep(17 * time.Second) // the other peers are idle for 27 s
	late.send(sink, 10)
	n.run(9*time.Second, func() bool { return late.acked[late.key(sink)] == 1 })
	if _, err := sink.layer.Peer(n.now, sink.key(n.hosts[1]), 0, 0); err != nil {
		t.Errorf("a second peer: %v", err)
	}
	must.Fail(t, "a third peer", must.Err(sink.layer.Peer(n.now, sink.key(n.hosts[2]), 0, 0)), ErrFull)
}

// Segments stored after gaps stay within their limit at any loss, and all arrive.
func TestStoreIsBounded(t *testing.T) {
	n := newNetwork(t, 1, impairment{loss: 20, reorder: 50})
	for range 4 {
		n.host(Config{Limits: Limits{StoredBytes: 4096}})
	}
	exchange(n, 100, 100*time.Second)
	dropped := uint64(0)
	for _, h := range n.hosts {
		dropped += h.layer.Count.DropStore
	}
	if dropped == 0 {
		t.Error("the bound was never met")
	}
}

func TestSegmentsAreBounded(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	a, b, c := n.host(Config{Limits: Limits{Segments: 10, PeerSegments: 6}}), n.host(Config{}), n.host(Config{})
	count := func(to *host) (sent int) {
		for a.send(to, 10) {
			sent++
		}
		return sent
	}
	if got := count(b); got != 6 {
		t.Errorf("%d segments to one peer, want 6", got)
	}
	if got := count(c); got != 4 {
		t.Errorf("%d segments to another, want 4", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("Send without room did not panic")
		}
	}()
	a.layer.peers[a.key(b)].Send(n.now, []byte{1}, nil)
}

// Queued challenges and refusals are limited, and never longer than the packet that they answer.
func TestRepliesAreBoundedAndShort(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	h := n.host(Config{Limits: Limits{Replies: 5}})
	for i := range 100 {
		k := wire.Packet{Header: wire.NewHeader(wire.KindRD, testQP, uint32(i), 0), Data: wire.Data{Epoch: 1}, ULPDU: make([]byte, 14)}
		k.Flags = wire.FlagData
		if i%2 == 0 {
			k.Flags |= wire.FlagStart
		}
		b := k.Append(nil)
		h.deliver(n.hosts[0].addr, b, false)
		if out, ok := h.layer.Output(n.now, nil); i < 50 && (!ok || len(out.Payload) > len(b)) {
			t.Fatalf("%d octets were answered with %d", len(b), len(out.Payload))
		}
		if i >= 50 {
			h.deliver(n.hosts[0].addr, b, false)
			h.deliver(n.hosts[0].addr, b, false)
		}
	}
	if h.layer.Count.DropReply == 0 || h.layer.Peers() != 0 {
		t.Errorf("%d replies dropped, %d peers", h.layer.Count.DropReply, h.layer.Peers())
	}
}

// CloseQP removes the peers of one queue pair at once. A new queue pair with the same number has
// other peers.
func TestCloseQPRemovesPeers(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	a, b := n.host(Config{}), n.host(Config{})
	n.cut = func(from, _ *host, k *wire.Packet) bool { return from == b && k.Flags.Has(wire.FlagAck) }
	a.send(b, 10)
	n.run(time.Second, func() bool { return len(b.got[b.key(a)]) == 1 })
	b.layer.CloseQP(testQP)
	b.drain()
	if b.layer.Peers() != 0 || b.removed != 0 {
		t.Errorf("%d peers, %d reported", b.layer.Peers(), b.removed)
	}
	n.cut = nil
	n.run(time.Second, func() bool { return len(a.failed) > 0 })
	if !errors.Is(a.failed[0], ErrRestarted) || len(b.got[b.key(a)]) != 1 {
		t.Errorf("failed with %v, %d delivered", a.failed[0], len(b.got[b.key(a)]))
	}
}

// maxBytesPerPeer is the specification's limit for a peer without segments in flight.
const maxBytesPerPeer = 640

// TestTenThousandPeers measures the memory of a queue pair for each recent peer, without and with a
// segment in flight.
func TestTenThousandPeers(t *testing.T) {
	const peers = 10_000
	n := newNetwork(t, 1, impairment{})
	hub := n.host(Config{})
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	// One layer acts as all the others, under as many addresses.
	others := n.host(Config{})
	exchangeWithEach(t, n, hub, others, peers)
	after := heap()
	if hub.layer.Peers() != peers {
		t.Fatalf("%d peers", hub.layer.Peers())
	}
	// Both layers hold one peer for each pair.
	each := float64(after-before) / (2 * peers)
	t.Logf("%.0f bytes a peer, of which Peer is %d; a segment in flight takes %d and its header, without its payload",
		each, unsafe.Sizeof(Peer{}), unsafe.Sizeof(segment{}))
	if each > maxBytesPerPeer {
		t.Errorf("%.0f bytes a peer, want at most %d", each, maxBytesPerPeer)
	}
	n.now = n.now.Add(time.Minute)
	for _, h := range n.hosts {
		h.layer.Tick(n.now)
		for e, ok := h.layer.Next(); ok; e, ok = h.layer.Next() {
			if e.Kind != EventGone {
				t.Fatalf("event %d after a minute", e.Kind)
			}
		}
	}
	if hub.layer.Peers() != 0 {
		t.Errorf("%d peers after a minute", hub.layer.Peers())
	}
	if left := heap(); left > before+(after-before)/4 {
		t.Errorf("%d KB of %d KB are not freed", (left-before)>>10, (after-before)>>10)
	}
	runtime.KeepAlive(n)
}

// exchangeWithEach exchanges a segment in each direction between hub and count queue pairs of
// others.
func exchangeWithEach(t *testing.T, n *network, hub, others *host, count int) {
	t.Helper()
	var k wire.Packet
	carry := func(from, to *host) {
		buf := make([]byte, 0, 2048)
		for {
			p, ok := from.layer.Output(n.now, buf)
			if !ok {
				return
			}
			must.Do(t, k.Parse(p.Payload))
			to.layer.Input(n.now, from.addr, &k, false)
			for e, ok := to.layer.Next(); ok; e, ok = to.layer.Next() {
				if e.Kind == EventSegment {
					to.layer.Accept(n.now)
				}
			}
			for e, ok := from.layer.Next(); ok; e, ok = from.layer.Next() {
				_ = e
			}
		}
	}
	payload := [][]byte{make([]byte, 64)}
	for i := range count {
		n.now += 1000
		qp := uint32(i + 100)
		for _, s := range []struct {
			from, to *host
			key      Key
		}{
			{others, hub, Key{RemoteAddr: hub.addr, LocalQP: qp, RemoteQP: testQP}},
			{hub, others, Key{RemoteAddr: others.addr, LocalQP: testQP, RemoteQP: qp}},
		} {
			p := must.Get(s.from.layer.Peer(n.now, s.key, 0, 0))(t)
			p.Send(n.now, make([]byte, 18), payload)
			for p.Waiting() > 0 {
				carry(s.from, s.to)
				carry(s.to, s.from)
			}
		}
	}
	if hub.layer.Count.Delivered != uint64(count) || others.layer.Count.Delivered != uint64(count) {
		t.Fatalf("%d and %d segments delivered, want %d each", hub.layer.Count.Delivered, others.layer.Count.Delivered, count)
	}
}

// A closed queue pair leaves no segment, no delayed acknowledgement and no blocked peer.
func TestCloseQPReleasesEverything(t *testing.T) {
	n, a, b, p := established(t)
	b.deliver(a.addr, data(p, 1, 0), false)
	if b.layer.delayedAcks != 1 {
		t.Fatalf("%d delayed acknowledgements, want 1", b.layer.delayedAcks)
	}
	late := n.host(Config{})
	b.receives = 0
	late.send(b, 10)
	n.run(time.Second, func() bool { return b.layer.blocked.first != nil })
	a.send(b, 10) // not sent before the close
	for _, h := range []*host{a, b} {
		h.layer.CloseQP(testQP)
		h.layer.verify(t)
	}
	if b.layer.blocked != (blockedList{}) {
		t.Errorf("%+v is blocked", b.layer.blocked)
	}
}

// A closed queue pair has no events, not even those that were not read before.
func TestCloseQPDropsEvents(t *testing.T) {
	n, a, b, p := established(t)
	n.cut = func(_, _ *host, _ *wire.Packet) bool { return true }
	for range 2 {
		a.send(b, 10)
	}
	a.flush()
	k := wire.Packet{Header: wire.NewHeader(wire.KindRD, testQP, testQP, 1)}
	k.Flags, k.Ack = wire.FlagAck, wire.Ack{Epoch: p.send.epoch, Next: p.send.sent, Window: wire.Window}
	a.layer.Input(n.now, b.addr, &k, false)
	if p.acked != 2 {
		t.Fatalf("%d segments acknowledged, want 2", p.acked)
	}
	a.layer.CloseQP(testQP)
	if e, ok := a.layer.Next(); ok {
		t.Errorf("event %+v of a closed queue pair", e)
	}
}

func TestPeersOfAreInOrderOfCreation(t *testing.T) {
	n := newNetwork(t, 1, impairment{})
	hub := n.host(Config{})
	var want []Key
	for range 20 {
		h := n.host(Config{})
		want = append(want, hub.key(h))
		hub.send(h, 10)
	}
	for i, p := range hub.layer.PeersOf(testQP) {
		if p.Key != want[i] {
			t.Fatalf("peer %d is %v, want %v", i, p.Key, want[i])
		}
	}
}
