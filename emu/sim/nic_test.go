package sim

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

func TestNICStageTimes(t *testing.T) {
	type packet struct {
		now   mono.Time
		flow  uint64
		bytes int
	}
	three := []packet{{0, 1, 100}, {0, 1, 100}, {0, 2, 100}}
	for name, c := range map[string]struct {
		costs   NICCosts
		packets []packet
		want    []mono.Time
	}{
		"one after the other":        {NICCosts{Send: StageCosts{Packet: 10}}, three, []mono.Time{10, 20, 30}},
		"idle between":               {NICCosts{Send: StageCosts{Packet: 10}}, []packet{{0, 1, 1}, {50, 1, 1}}, []mono.Time{10, 60}},
		"latency overlaps":           {NICCosts{Send: StageCosts{Packet: 10, Latency: 1000}}, three, []mono.Time{1010, 1020, 1030}},
		"two units":                  {NICCosts{Send: StageCosts{Packet: 10}, Units: 2}, three, []mono.Time{10, 20, 10}},
		"bytes":                      {NICCosts{Send: StageCosts{Packet: 10, PicosecondsPerByte: 500}}, three, []mono.Time{60, 120, 180}},
		"units share PCIe":           {NICCosts{Send: StageCosts{Packet: 10}, Units: 2, PCIeBps: 8e9}, three, []mono.Time{100, 200, 300}},
		"DMA beyond the inline size": {NICCosts{Send: StageCosts{Packet: 10}, InlineBytes: 100, DMARead: 300}, []packet{{0, 1, 101}, {500, 1, 100}}, []mono.Time{310, 510}},
		"a short packet waits":       {NICCosts{Send: StageCosts{Packet: 10}, InlineBytes: 100, DMARead: 300}, []packet{{0, 1, 101}, {0, 1, 100}}, []mono.Time{310, 310}},
		"contexts": {
			NICCosts{Send: StageCosts{Packet: 10}, ContextEntries: 2, ContextMiss: 100},
			[]packet{{0, 1, 1}, {1000, 2, 1}, {2000, 1, 1}, {3000, 3, 1}, {4000, 1, 1}, {5000, 2, 1}}, // 3 replaces 2
			[]mono.Time{110, 1110, 2010, 3110, 4010, 5110},
		},
	} {
		s := newPortNIC(&c.costs, nil).send
		var got []mono.Time
		for _, p := range c.packets {
			got = append(got, s.pass(p.now, nicPacket{flow: p.flow, bytes: p.bytes}))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: packets leave at %v, want %v", name, got, c.want)
		}
	}
}

// slowPair returns two hosts with NICs on a cable of 1 ns per byte and 10 µs.
func slowPair(t *testing.T, w *World, txQueue int) (a, b *host) {
	t.Helper()
	n := newNet(t, w, NetConfig{Cable: true})
	cfg := PortConfig{Link: LinkConfig{RateBps: 8e9, Latency: 10_000, TxQueueBytes: txQueue}, NIC: NICCosts{
		Send: StageCosts{Packet: 2000, Latency: 700}, Receive: StageCosts{Packet: 3000}, DMAWrite: 50,
	}}
	return attach(t, n, cfg), attach(t, n, cfg)
}

func TestNICsDelayPackets(t *testing.T) {
	w := New(Config{})
	a, b := slowPair(t, w, 0)
	a.send(t, b, sized(1000), sized(500))
	mustRun(t, w)
	// The first leaves the sender's NIC at 2700, and its last bit arrives at 13,700. The second
	// arrives at 4700 + 500 + 10,000, while the receiver is busy until 16,700.
	if want := []mono.Time{16_750, 19_750}; !slices.Equal(b.times(), want) {
		t.Errorf("delivered at %v, want %v", b.times(), want)
	}
}

// A NIC writes a multicast to memory for each queue pair that has joined the group, but not for the sender's.
func TestNICWritesMulticastForEachMember(t *testing.T) {
	group := netip.MustParseAddr("ff02::7")
	const once = 1020 // bytes, and ns on the cable and to memory
	for joins := 1; joins <= 4; joins++ {
		w := New(Config{})
		n := newNet(t, w, NetConfig{Cable: true})
		cfg := PortConfig{Link: LinkConfig{RateBps: 8e9, Latency: 10_000}, NIC: NICCosts{Receive: StageCosts{Packet: 1}, PCIeBps: 8e9, InlineBytes: 1 << 20}}
		a, b := attach(t, n, cfg), attach(t, n, cfg)
		for range joins {
			must.Do(t, b.Join(group))
			must.Do(t, a.Join(group))
		}
		d := a.to(b, sized(1000))
		d.Dst = netip.AddrPortFrom(group, d.Dst.Port())
		must.Get(a.Send(w.Now(), []link.Datagram{d}))(t)
		mustRun(t, w)
		want := []mono.Time{mono.Time(10_000 + once + joins*once)}
		ofSender := []mono.Time{mono.Time(10_000 + once + max(1, joins-1)*once)}
		if !slices.Equal(b.times(), want) || !slices.Equal(a.times(), ofSender) {
			t.Errorf("%d members: received at %v, and by the sender at %v, want %v and %v", joins, b.times(), a.times(), want, ofSender)
		}
	}
}

func TestNICsDelaySegments(t *testing.T) {
	w := New(Config{})
	a, b := slowPair(t, w, 0)
	listener := must.Get(a.Net().ListenStream(b.addr))(t)
	stream := must.Get(a.Net().DialStream(netip.AddrPortFrom(a.addr.Addr(), 0), b.addr))(t)
	var connected mono.Time
	stream.OnWritable(HandlerFunc(func(now mono.Time, _ uint64) { connected = now }), 0)
	mustRun(t, w)
	if s, err := listener.Accept(); s == nil || err != nil {
		t.Fatal(s, err)
	}
	if want := mono.Time(2 * (2700 + 52 + 10_000 + 3050)); connected != want {
		t.Errorf("connected at %d, want %d", connected, want)
	}
	must.Get(stream.Write(w.Now(), make([]byte, 2*stream.MSS())))(t)
	if took := stream.AcceptedAt().Sub(w.Now()); took != 2*2000 { // without the latency of the NIC
		t.Errorf("two segments are accepted after %d", took)
	}
}

// Packets in the NIC count as queued: Send accepts no more until one has left.
func TestSendWaitsForNIC(t *testing.T) {
	w := New(Config{})
	a, b := slowPair(t, w, 2000)
	sent := 0
	send := func() {
		for sent < 7 && must.Get(a.Send(w.Now(), []link.Datagram{a.to(b, append(numbered(sent), sized(996)...))}))(t) == 1 {
			sent++
		}
	}
	a.OnWritable(HandlerFunc(func(mono.Time, uint64) { send() }), 0)
	send()
	if sent != 2 {
		t.Fatalf("Send accepted %d packets at once, want 2", sent)
	}
	mustRun(t, w)
	if want := []int{0, 1, 2, 3, 4, 5, 6}; !slices.Equal(b.numbers(), want) {
		t.Errorf("received %v, want %v", b.numbers(), want)
	}
}

// Both directions of the stack share its cores, and a verb call waits for a free one.
func TestStackSharesCores(t *testing.T) {
	n := newPortNIC(&NICCosts{Stack: StackCosts{
		UDP: ProtocolCosts{Send: StageCosts{Packet: 100}, Receive: StageCosts{Packet: 300}}, Cores: 2,
		TCP: ProtocolCosts{Send: StageCosts{Packet: 1000, PicosecondsPerByte: 2000}},
	}}, nil)
	if n.send != nil || n.receive != nil {
		t.Error("the NIC takes time")
	}
	a, b := nicPacket{flow: 1, bytes: 50}, nicPacket{flow: 2, bytes: 50}
	got := []mono.Time{n.udpSend.pass(0, a), n.udpReceive.pass(0, a), n.tcpSend.pass(0, b), n.udpSend.pass(0, b), n.cores.freeAt()}
	if want := []mono.Time{100, 400, 1100, 1200, 400}; !slices.Equal(got, want) {
		t.Errorf("packets leave, and a core is free, at %v, want %v", got, want)
	}
}

// A flow stays on its core while it has packets there; then it takes the core that is free first.
func TestFlowsMoveToFreeCores(t *testing.T) {
	n := newPortNIC(&NICCosts{Stack: StackCosts{UDP: ProtocolCosts{Send: StageCosts{Packet: 100}}, Cores: 2}}, nil)
	var got []mono.Time
	for _, p := range []struct {
		now  mono.Time
		flow uint64
	}{{0, 1}, {0, 2}, {0, 1}, {0, 3}, {150, 2}, {150, 1}} {
		got = append(got, n.udpSend.pass(p.now, nicPacket{flow: p.flow}))
	}
	if want := []mono.Time{100, 100, 200, 200, 300, 400}; !slices.Equal(got, want) {
		t.Errorf("packets leave at %v, want %v", got, want)
	}
}

// Packets to several queue pairs between two ports of UDP are several flows.
func TestQueuePairsAreFlows(t *testing.T) {
	n := newPortNIC(&NICCosts{Stack: StackCosts{Cores: 2}}, toy{})
	flow := func(qp byte) uint64 {
		return n.describe(&packet{Datagram: link.Datagram{Payload: toyPacket(qp, 1)}}).flow
	}
	if first, again, other := flow(1), flow(1), flow(2); first == other || first != again {
		t.Errorf("flows %#x and %#x of one queue pair, %#x of another", first, again, other)
	}
}

func TestStackDelaysPacketsAndCalls(t *testing.T) {
	w := New(Config{})
	n := newNet(t, w, NetConfig{Cable: true})
	cfg := PortConfig{Link: LinkConfig{Latency: 10_000}, NIC: NICCosts{Stack: StackCosts{
		UDP: ProtocolCosts{Send: StageCosts{Packet: 700}, Receive: StageCosts{Packet: 900}},
		TCP: ProtocolCosts{Send: StageCosts{Packet: 2000}, Receive: StageCosts{Packet: 3000}},
	}}}
	a, b := attach(t, n, cfg), attach(t, n, cfg)
	var busyUntil mono.Time
	w.Go("sender", func(p *Proc) error {
		a.send(t, b, sized(100), sized(100))
		a.nic.waitForCPU(p)
		busyUntil = w.Now()
		return nil
	})
	mustRun(t, w)
	if want := []mono.Time{11_600, 12_500}; !slices.Equal(b.times(), want) || busyUntil != 1400 {
		t.Errorf("delivered at %v, want %v; the sender's CPU is busy until %d", b.times(), want, busyUntil)
	}
	must.Get(a.Net().ListenStream(b.addr))(t)
	began := w.Now()
	stream := must.Get(a.Net().DialStream(netip.AddrPortFrom(a.addr.Addr(), 0), b.addr))(t)
	var connected mono.Time
	stream.OnWritable(HandlerFunc(func(now mono.Time, _ uint64) { connected = now }), 0)
	mustRun(t, w)
	if took := connected.Sub(began); took != 2*15_000 {
		t.Errorf("connected after %d, want %d", took, 2*15_000)
	}
	must.Get(stream.Write(w.Now(), make([]byte, 100)))(t)
	if took := stream.AcceptedAt().Sub(w.Now()); took != 2000 {
		t.Errorf("a segment is accepted after %d", took)
	}
}

func TestMemoryOfNICPackets(t *testing.T) {
	n := newPortNIC(&NICCosts{InlineBytes: 200, DMARead: 300, TranslationEntries: 1, TranslationMiss: 1000}, nil)
	for i, c := range []struct {
		pk   nicPacket
		want mono.Time
	}{
		{nicPacket{bytes: 100}, 0},
		{nicPacket{bytes: 100, fromMemory: true}, 300},
		{nicPacket{bytes: 100, addr: 0x1fff, hasAddr: true}, 1000},
		{nicPacket{bytes: 100, addr: 0x1000, hasAddr: true}, 0}, // of the same page
		{nicPacket{bytes: 100, addr: 0x2000, hasAddr: true}, 1000},
		{nicPacket{bytes: 100, addr: 0x1000, hasAddr: true}, 1000},
	} {
		now := mono.Time(10_000 * i)
		if took := n.send.pass(now, c.pk) - now; took != c.want {
			t.Errorf("packet %d takes %d, want %d", i, took, c.want)
		}
	}
	shared := newPortNIC(&NICCosts{PCIeBps: 8e9, HalfDuplexBus: true, ReceiveRequest: 50}, nil)
	if sent, received := shared.send.pass(0, nicPacket{bytes: 100}), shared.receive.pass(0, nicPacket{bytes: 100, consumesReceive: true}); sent != 100 || received != 250 {
		t.Errorf("packets on a shared bus leave at %d and %d", sent, received)
	}
}

// A full cache allocates nothing.
func TestRecentCacheAllocatesNothing(t *testing.T) {
	c, key := recentCache{size: 4, miss: 1}, uint64(0)
	for range 10 {
		key++
		c.use(key)
	}
	if n := testing.AllocsPerRun(100, func() { key++; c.use(key); c.use(key - 3) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestInvalidNICCostsAreRefused(t *testing.T) {
	n := newNet(t, New(Config{}), NetConfig{})
	for _, c := range []NICCosts{{Units: -1}, {DMARead: -1}, {ContextEntries: -1}, {Receive: StageCosts{PicosecondsPerByte: -1}}, {Stack: StackCosts{Cores: -1}}, {TranslationMiss: -1}} {
		if _, err := n.Attach(PortConfig{Addrs: []netip.Addr{addrOf(1)}, NIC: c}); err == nil {
			t.Error(fmt.Sprintf("%+v", c), "is accepted")
		}
	}
}
