package engine

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// peer is a scripted peer of the NIC: a test determines which packets it sends and which it
// expects, and when.
//
// Packets, completions and events are compared as text. PSNs in the text count from the first of
// their direction, so that they are the same anywhere in the PSN space.
type peer struct {
	*testing.T
	flavour
	h    *host
	q    *QP
	addr netip.Addr
	now  mono.Time
	port uint16        // the NIC's UDP source port, after its first packet
	got  []wire.Packet // the packets of the last expect, payloads copied
	ds   []link.Datagram
}

// flavour is a variant of the setup that must not change the behaviour.
type flavour struct {
	name   string
	host   string
	peer   string
	mtu    int
	rq, sq wire.PSN // first PSN that the NIC expects, and that it sends
	blind  bool     // the IP identification of packets is not visible
}

var flavours = []flavour{
	{name: "ipv4", host: "10.0.0.1", peer: "10.0.0.2", mtu: 1024, rq: 100, sq: 500},
	{name: "ipv6_wrap", host: "fd00::1", peer: "fd00::2", mtu: 256, rq: 0xfffffe, sq: 0xffffff},
	{name: "ipv4_sign", host: "10.0.0.1", peer: "10.0.0.2", mtu: 4096, rq: 0x7ffffe, sq: 0x7fffff, blind: true},
	{name: "ipv6_zero", host: "fd00::1", peer: "fd00::2", mtu: 512, rq: 0, sq: 0xfffffc},
	{name: "ipv6_2048", host: "fd00::1", peer: "fd00::2", mtu: 2048, rq: 0xfffffd, sq: 0x800000},
}

// setup changes the initial configuration; nil fields change nothing.
type setup struct {
	nic  func(*Config)
	qp   func(*QPConfig)
	attr func(*verbs.QPAttr)
}

const (
	peerQPN = 0x1234
	// Offsets in the host's memory.
	sourceAt = 0       // payload of sends and writes
	sinkAt   = 0x40000 // results of reads and atomics
	recvAt   = 0x80000 // receive buffers, recvSize each
	recvSize = 0x4000
	targetAt = 0xc0000 // the peer reads and writes it
	// Memory of the peer: only packets have its address and key.
	peerVA   = 0x5000_0000
	peerRKey = 0x55aa
)

// The initial contents of memory.
var sourceData, targetData = pattern(sinkAt-sourceAt, 3), pattern(memSize-targetAt, 5)

var initialMemory = append(append(bytes.Clone(sourceData), make([]byte, targetAt-sinkAt)...), targetData...)

// expectMemoryUnchanged fails the test if memory has changed since the start.
func (p *peer) expectMemoryUnchanged() {
	p.Helper()
	if !bytes.Equal(p.h.mem, initialMemory) {
		p.Error("memory changed")
	}
}

func pattern(n, seed int) []byte {
	b := make([]byte, n)
	fill(b, seed)
	return b
}

// each runs f with every flavour of a connected NIC.
func each(t *testing.T, s setup, f func(p *peer)) {
	t.Helper()
	for _, fl := range flavours {
		t.Run(fl.name, func(t *testing.T) { f(newPeer(t, fl, s)) })
	}
}

func newPeer(t *testing.T, fl flavour, s setup) *peer {
	t.Helper()
	h := newHost(t, fl.host, s.nic)
	copy(h.mem, initialMemory)
	p := &peer{T: t, flavour: fl, h: h, addr: netip.MustParseAddr(fl.peer), now: 1}
	p.ds = newNetwork().batch
	p.q = h.qp(verbs.QPTypeRC, s.qp)
	h.ready(p.q, p.addr, peerQPN, func(a *verbs.QPAttr) {
		a.PathMTU = verbs.MTUFor(fl.mtu)
		a.RQPSN, a.SQPSN = uint32(fl.rq), uint32(fl.sq)
		if s.attr != nil {
			s.attr(a)
		}
	})
	return p
}

// An edit changes a packet that the peer is about to send.
type edit func(*wire.Packet)

func ackReq(k *wire.Packet) { k.BTH.AckReq = true }

func solicited(k *wire.Packet) { k.BTH.Solicited = true }

// data gives a packet n bytes of payload.
func data(n int) edit {
	return func(k *wire.Packet) {
		k.Payload = pattern(n, int(k.BTH.Opcode)+n)
	}
}

func payload(b []byte) edit { return func(k *wire.Packet) { k.Payload = b } }

func imm(v uint32) edit { return func(k *wire.Packet) { k.Imm = wire.ImmDt(v) } }

func inv(key uint32) edit { return func(k *wire.Packet) { k.IETH.RKey = key } }

func rkey(key uint32) edit { return func(k *wire.Packet) { k.RETH.RKey, k.AtomicETH.RKey = key, key } }

func syndrome(s wire.Syndrome) edit {
	return func(k *wire.Packet) { k.AETH.Syndrome = s }
}

// at sets the RETH to n bytes of the target memory at off.
func (p *peer) at(off, n int) edit {
	return func(k *wire.Packet) {
		k.RETH = wire.RETH{VA: p.h.mr.Addr + targetAt + uint64(off), RKey: p.h.mr.Key, DMALen: uint32(n)}
	}
}

// word sets the AtomicETH to the word of the target memory at off.
func (p *peer) word(off int, swapAdd, compare uint64) edit {
	return func(k *wire.Packet) {
		k.AtomicETH = wire.AtomicETH{VA: p.h.mr.Addr + targetAt + uint64(off), RKey: p.h.mr.Key, SwapAdd: swapAdd, Compare: compare}
	}
}

// target is the memory that at and word name.
func (p *peer) target(off, n int) []byte { return p.h.mem[targetAt+off:][:n] }

// build returns a datagram with the k-th PSN of its direction.
func (p *peer) build(op wire.Operation, k int, edits ...edit) link.Datagram {
	base := p.rq
	if info, _ := wire.Opcode(op).Info(); info.Class.Has(wire.Response) {
		base = p.sq
	}
	pk := wire.Packet{BTH: wire.BTH{
		Opcode: wire.MakeOpcode(wire.TransportRC, op), PKey: wire.DefaultPKey, DestQP: p.q.num, PSN: base.Add(int32(k)),
	}}
	pk.AETH.Syndrome = wire.Ack(wire.CreditUnlimited)
	for _, e := range edits {
		e(&pk)
	}
	d := link.Datagram{
		Src: netip.AddrPortFrom(p.addr, 0xc123), Dst: netip.AddrPortFrom(p.h.addr, wire.Port),
		HopLimit: 64, Payload: pk.Append(nil),
	}
	p.seal(&d)
	return d
}

// seal computes the ICRC of d and hides the IP identification if the flavour requires it.
func (p *peer) seal(d *link.Datagram) {
	id := uint16(0x7a31)
	icrc := wire.NewICRC(d.Src, d.Dst)
	icrc.Seal(id, d.Payload)
	d.IPID = uint32(id)
	if p.blind {
		d.IPID = link.IPIDUnknown
	}
}

// send delivers a packet to the NIC.
func (p *peer) send(op wire.Operation, k int, edits ...edit) {
	p.Helper()
	p.deliver(p.build(op, k, edits...))
}

// deliver delivers a datagram to the NIC, which must count it once and not use the
// buffer afterwards.
func (p *peer) deliver(d link.Datagram) {
	p.Helper()
	before := p.h.nic.Count.Received
	p.h.nic.Input(p.now, &d)
	clear(d.Payload)
	if n := p.h.nic.Count.Received - before; n != 1 {
		p.Errorf("a datagram was counted %d times", n)
	}
}

func (p *peer) ack(k int) { p.send(wire.OpAcknowledge, k) }

func (p *peer) nak(k int, code wire.NakCode) { p.send(wire.OpAcknowledge, k, syndrome(wire.Nak(code))) }

func (p *peer) rnr(k int, timer uint8) { p.send(wire.OpAcknowledge, k, syndrome(wire.RNRNak(timer))) }

// to advances the time to at. The NIC must not send before.
func (p *peer) to(at mono.Time) {
	p.Helper()
	for next := p.h.nic.Deadline(); next <= at; next = p.h.nic.Deadline() {
		p.now = max(p.now, next)
		p.h.nic.Tick(p.now)
		if p.now < at {
			p.expect()
		}
	}
	p.now = at
}

// wait advances the time by d. The NIC must not send before the end.
func (p *peer) wait(d time.Duration) {
	p.Helper()
	p.to(p.now.Add(d))
}

// silence advances the time by d. The NIC must not send.
func (p *peer) silence(d time.Duration) {
	p.Helper()
	p.wait(d)
	p.expect()
}

// expect compares the packets that the NIC sends now.
func (p *peer) expect(want ...string) {
	p.Helper()
	p.got = p.got[:0]
	var got []string
	for {
		n := p.h.nic.Output(p.now, p.ds)
		for i := range n {
			got = append(got, p.checkPacket(&p.ds[i]))
		}
		if n < len(p.ds) {
			break
		}
	}
	p.compare("sent", got, want)
}

// post posts a signaled request of n bytes.
func (p *peer) post(id uint64, op verbs.WROpcode, n int, edits ...func(*verbs.SendWR)) {
	p.Helper()
	wr := verbs.SendWR{
		WRID: id, Opcode: op, Flags: verbs.SendSignaled,
		Remote: verbs.Remote{Addr: peerVA, RKey: peerRKey}, SGL: []verbs.SGE{p.h.sge(sourceAt, n)},
	}
	switch op {
	case verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		wr.SGL[0] = p.h.sge(sinkAt, n)
	}
	for _, e := range edits {
		e(&wr)
	}
	p.h.send(p.q, p.now, wr)
}

// recv posts a receive of n bytes. Its buffer is recvBuf(id, n).
func (p *peer) recv(id uint64, n int) {
	p.Helper()
	p.h.recv(p.q, id, p.h.sge(recvAt+int(id%16)*recvSize, n))
}

func (p *peer) recvBuf(id uint64, n int) []byte { return p.h.mem[recvAt+int(id%16)*recvSize:][:n] }

// wcs compares the completions.
func (p *peer) wcs(want ...string) {
	p.Helper()
	var got []string
	for _, wc := range p.h.poll() {
		got = append(got, renderWC(&wc))
	}
	p.compare("completed", got, want)
}

// events compares the asynchronous events.
func (p *peer) events(want ...verbs.AsyncEventType) {
	p.Helper()
	var got []verbs.AsyncEventType
	for e, ok := p.h.nic.NextEvent(); ok; e, ok = p.h.nic.NextEvent() {
		got = append(got, e.Type)
	}
	if !reflect.DeepEqual(got, want) {
		p.Fatalf("events %v, want %v", got, want)
	}
}

func (p *peer) state(want verbs.QPState) {
	p.Helper()
	if p.q.State() != want {
		p.Fatalf("state is %v, want %v", p.q.State(), want)
	}
}

// bindWindow binds a type 2 window of n bytes of the target memory and returns its key.
func (p *peer) bindWindow(n uint64) uint32 {
	p.Helper()
	w, err := p.h.nic.AllocMW(p.h.pd, verbs.MWType2)
	if err != nil {
		p.Fatal(err)
	}
	err = p.h.nic.Mem.Bind(w, nic.Bind{
		Region: p.h.mr, Addr: p.h.mr.Addr + targetAt, Len: n, Key: w.Key, PD: p.h.pd, QPN: p.q.num,
		Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic,
	})
	if err != nil {
		p.Fatal(err)
	}
	return w.Key
}

// wordValue is the word that atomics find at the start of b.
func (p *peer) wordValue(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// endless is memory of any size that stores nothing.
type endless uint64

func (e endless) ReadAt([]byte, uint64) error { return nil }

func (e endless) WriteAt([]byte, uint64) error { return nil }

func (e endless) Len() uint64 { return uint64(e) }

func (e endless) Update(uint64, func(uint64) uint64) (uint64, error) { return 0, nil }

// region registers the memory of the host again, with other access flags.
func (p *peer) region(access verbs.Access) uint32 {
	p.Helper()
	mr, err := p.h.nic.RegMR(p.h.pd, nic.Bytes(p.h.mem), p.h.mr.Addr, access)
	if err != nil {
		p.Fatal(err)
	}
	return mr.Key
}

// droppingEvery drops every n-th packet of a network.
func droppingEvery(n int, lost *int) func(*link.Datagram) bool {
	seen := 0
	return func(*link.Datagram) bool {
		if seen++; seen%n == 0 {
			*lost++
			return true
		}
		return false
	}
}
