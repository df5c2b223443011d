package rd

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// trouble is what happens to packets, in percent.
type trouble struct {
	loss, duplicate, reorder, corrupt, mark int
	// linger makes a second copy arrive, up to a minute later.
	linger int
}

// network carries packets between hosts, each with a chance to be lost, and so
// on. All of it follows from a seed.
type network struct {
	t     testing.TB
	rng   *rand.Rand
	now   mono.Time
	delay time.Duration
	bad   trouble
	// cut, if there is one, says which packets vanish besides.
	cut   func(from, to *host, k *wire.Packet) bool
	hosts []*host
	queue flights
	seq   uint64
	sent  int
}

type flight struct {
	at     mono.Time
	seq    uint64
	from   *host
	to     *host
	bytes  []byte
	marked bool
}

type flights []flight

func (f flights) Len() int { return len(f) }
func (f flights) Less(i, j int) bool {
	return f[i].at < f[j].at || f[i].at == f[j].at && f[i].seq < f[j].seq
}
func (f flights) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *flights) Push(v any)   { *f = append(*f, v.(flight)) }
func (f *flights) Pop() any {
	old := *f
	v := old[len(old)-1]
	*f = old[:len(old)-1]
	return v
}

func newNetwork(t testing.TB, seed uint64, bad trouble) *network {
	return &network{t: t, rng: rand.New(rand.NewPCG(seed, 17)), delay: 10 * time.Microsecond, bad: bad}
}

// host is a layer with one queue pair, number 7, and the model of its owner.
type host struct {
	net    *network
	addr   netip.AddrPort
	layer  *Layer
	starts uint64
	cfg    Config

	// sent and got hold the numbers of segments by peer: what was handed to Send,
	// what is not acknowledged, and what was delivered.
	sending      map[Key]uint32
	waiting      map[Key][]uint32
	acked        map[Key]int
	ackedNumbers map[Key][]uint32
	got          map[Key][]uint32
	failed       []error
	begins       map[Key]int
	gone         int
	receives     int // that are left; less than 0: any number
	deferred     int
	trusting     bool  // does not look at what arrives
	reply        *host // is sent a segment a microsecond later
	// take, if there is one, sees every segment.
	take func(k Key, n uint32)
}

const testQP = 7

func (n *network) host(cfg Config) *host {
	h := &host{net: n, cfg: cfg, addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(len(n.hosts) >> 8), byte(len(n.hosts))}), wire.Port)}
	h.start()
	n.hosts = append(n.hosts, h)
	return h
}

// start makes the host begin, or begin anew with nothing in its memory.
func (h *host) start() {
	h.starts++
	binary.LittleEndian.PutUint64(h.cfg.Secret[:], h.starts)
	copy(h.cfg.Secret[8:], h.addr.String())
	var err error
	if h.layer, err = New(h.cfg); err != nil {
		h.net.t.Fatal(err)
	}
	h.sending, h.waiting, h.acked = map[Key]uint32{}, map[Key][]uint32{}, map[Key]int{}
	h.ackedNumbers = map[Key][]uint32{}
	h.got, h.begins = map[Key][]uint32{}, map[Key]int{}
	h.failed, h.receives = nil, -1
}

func (h *host) key(to *host) Key { return Key{Remote: to.addr, Local: testQP, RemoteQP: testQP} }

// content is what segment n of a host looks like: its number, and octets that
// follow from it.
func content(b []byte, n uint32, size int) []byte {
	b = binary.BigEndian.AppendUint32(b, n)
	for i := 4; i < size; i++ {
		b = append(b, byte(n)+byte(i))
	}
	return b
}

// send hands a segment to the layer, and reports false if there is no room.
func (h *host) send(to *host, size int) bool {
	k := h.key(to)
	p, err := h.layer.Peer(h.net.now, k, 1, 1)
	if err != nil {
		h.net.t.Fatalf("%v to %v: %v", h.addr, to.addr, err)
	}
	if p.Room() == 0 {
		return false
	}
	n := h.sending[k]
	h.sending[k]++
	h.waiting[k] = append(h.waiting[k], n)
	b := content(nil, n, max(size, 4))
	cut := min(len(b), 4+h.net.rng.IntN(60))
	mid := cut + (len(b)-cut)/2
	p.Send(h.net.now, b[:cut], [][]byte{b[cut:mid], b[mid:]})
	return true
}

// drain deals with all events of the layer, and checks what can be checked.
func (h *host) drain() {
	t := h.net.t
	for {
		e, ok := h.layer.Next(h.net.now)
		if !ok {
			return
		}
		k := e.Peer.Key
		switch e.Kind {
		case EventBegins:
			h.begins[k]++
		case EventSegment:
			if h.receives == 0 {
				h.deferred++
				h.layer.Defer(h.net.now)
				continue
			}
			if h.trusting {
				h.layer.Accept(h.net.now)
				continue
			}
			n := binary.BigEndian.Uint32(e.Segment)
			if want := content(nil, n, len(e.Segment)); string(want) != string(e.Segment) {
				t.Fatalf("%v: segment %d from %v is damaged: %x", h.addr, n, k.Remote, e.Segment)
			}
			if h.receives > 0 {
				h.receives--
			}
			h.got[k] = append(h.got[k], n)
			if h.take != nil {
				h.take(k, n)
			}
			h.layer.Accept(h.net.now)
		case EventAcked:
			h.acked[k] += e.Acked
			h.ackedNumbers[k] = append(h.ackedNumbers[k], h.waiting[k][:e.Acked]...)
			h.waiting[k] = h.waiting[k][e.Acked:]
		case EventFailed:
			h.failed = append(h.failed, e.Err)
			h.waiting[k] = nil
		case EventGone:
			h.gone++
			if len(h.waiting[k]) > 0 {
				t.Fatalf("%v: %v went with %d segments waiting", h.addr, k, len(h.waiting[k]))
			}
		}
		h.layer.verify(t)
	}
}

// flush puts what the layer has to say on the wire.
func (h *host) flush() {
	n := h.net
	for {
		p, ok := h.layer.Output(n.now, nil)
		if !ok {
			break
		}
		if len(p.Payload) > h.layer.cfg.MaxPacket {
			n.t.Fatalf("packet of %d octets", len(p.Payload))
		}
		n.carry(h, p)
	}
	h.layer.verify(n.t)
}

func (n *network) chance(percent int) bool { return percent > 0 && n.rng.IntN(100) < percent }

func (n *network) carry(from *host, p Packet) {
	n.sent++
	var to *host
	for _, h := range n.hosts {
		if h.addr == p.Dst {
			to = h
		}
	}
	var k wire.Packet
	if err := k.Parse(p.Payload); err != nil || !wire.Intact(p.Payload) {
		n.t.Fatalf("%v sent %x: %v", from.addr, p.Payload, err)
	}
	if to == nil || n.cut != nil && n.cut(from, to, &k) || n.chance(n.bad.loss) {
		return
	}
	copies, late := 1, n.chance(n.bad.linger)
	if late || n.chance(n.bad.duplicate) {
		copies = 2
	}
	for i := range copies {
		at := n.now.Add(n.delay)
		if i > 0 && late {
			at = at.Add(time.Duration(n.rng.Int64N(int64(time.Minute))))
		}
		if n.chance(n.bad.reorder) {
			at = at.Add(time.Duration(n.rng.Int64N(int64(20 * n.delay))))
		}
		b := append([]byte(nil), p.Payload...)
		if n.chance(n.bad.corrupt) {
			b[n.rng.IntN(len(b))] ^= 1 << n.rng.IntN(8)
		}
		n.seq++
		heap.Push(&n.queue, flight{at: at, seq: n.seq, from: from, to: to, bytes: b, marked: n.chance(n.bad.mark)})
	}
}

// deliver hands bytes from src to h as a NIC would.
func (h *host) deliver(src netip.AddrPort, b []byte, marked bool) {
	var k wire.Packet
	if !wire.Intact(b) || k.Parse(b) != nil || k.Kind == wire.KindUD || k.DstQP != testQP {
		return
	}
	h.layer.Input(h.net.now, src, &k, marked)
	h.drain()
}

// step moves the time to the next thing that happens, and reports false if
// nothing does until limit.
func (n *network) step(limit mono.Time) bool {
	for _, h := range n.hosts {
		h.flush()
	}
	at := limit
	for _, h := range n.hosts {
		if h.reply != nil {
			at = min(at, n.now.Add(time.Microsecond))
		}
	}
	if len(n.queue) > 0 {
		at = min(at, n.queue[0].at)
	}
	for _, h := range n.hosts {
		at = min(at, h.layer.Deadline())
	}
	if at >= limit {
		n.now = max(n.now, limit)
		return false
	}
	n.now = max(n.now, at)
	for _, h := range n.hosts {
		if to := h.reply; to != nil {
			h.reply = nil
			h.send(to, 10)
		}
	}
	for len(n.queue) > 0 && n.queue[0].at <= n.now {
		f := heap.Pop(&n.queue).(flight)
		f.to.deliver(f.from.addr, f.bytes, f.marked)
	}
	for _, h := range n.hosts {
		h.layer.Tick(n.now)
		h.drain()
	}
	return true
}

// run goes on until done is true, or fails after the given time.
func (n *network) run(d time.Duration, done func() bool) {
	n.t.Helper()
	limit := n.now.Add(d)
	for !done() {
		if !n.step(limit) {
			n.t.Fatalf("not done after %v", d)
		}
	}
}

// sleep lets time pass.
func (n *network) sleep(d time.Duration) {
	for limit := n.now.Add(d); n.step(limit); {
	}
}

// verify holds the books of a layer against each other.
func (l *Layer) verify(t testing.TB) {
	used, bytes := 0, 0
	for _, p := range l.timers.heap {
		var sacked, lost, count uint16
		for s := p.oldest; s != nil; s = s.next {
			if s.seq != p.una.Add(int32(count)) {
				t.Fatalf("%v: segment %d at place %d of those from %d on", p.Key, s.seq, count, p.una)
			}
			count++
			if s.sacked {
				sacked++
			}
			if s.lost {
				lost++
			}
		}
		used += int(count)
		if int(count) != p.Waiting() || sacked != p.sacked || lost != p.lost || p.inFlight() < 0 {
			t.Fatalf("%v: %d segments of %d, %d sacked of %d, %d lost of %d, %d in flight", p.Key, count, p.Waiting(), sacked, p.sacked, lost, p.lost, p.inFlight())
		}
		if p.outstanding() > 0 && p.timeoutAt == mono.Never {
			t.Fatalf("%v: %d segments outstanding and no timeout", p.Key, p.outstanding())
		}
		last := p.rcvNext
		for s := p.stored; s != nil; s = s.next {
			if s.seq.Less(last) || s.seq.Sub(p.rcvNext) >= wire.Window {
				t.Fatalf("%v: segment %d stored behind %d, next is %d", p.Key, s.seq, last, p.rcvNext)
			}
			last = s.seq.Add(1)
			bytes += cap(s.buf)
		}
	}
	if used != l.segments.used || bytes != l.cfg.Limits.StoredBytes-l.storedByteRoom || len(l.peers) != len(l.timers.heap) {
		t.Fatalf("%d segments of %d, %d bytes stored of %d, %d peers of %d", used, l.segments.used, bytes, l.cfg.Limits.StoredBytes-l.storedByteRoom, len(l.peers), len(l.timers.heap))
	}
}

// inOrder fails unless to got exactly the first n numbers from from.
func (h *host) inOrder(from *host, n int) {
	h.net.t.Helper()
	got := h.got[h.key(from)]
	if len(got) != n {
		h.net.t.Fatalf("%v got %d segments from %v, want %d", h.addr, len(got), from.addr, n)
	}
	for i, v := range got {
		if int(v) != i {
			h.net.t.Fatalf("%v got segment %d from %v at place %d", h.addr, v, from.addr, i)
		}
	}
}

func (h *host) String() string { return fmt.Sprint(h.addr) }
