package rd

import (
	"container/heap"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// impairment has the percentages of packets that are impaired.
type impairment struct {
	loss, duplicate, reorder, corrupt, mark int
	// linger delivers a second copy up to a minute later.
	linger int
}

// network carries packets between hosts with random impairments, which follow from a seed.
type network struct {
	t     testing.TB
	rng   *rand.Rand
	now   mono.Time
	delay time.Duration
	bad   impairment
	// cut, if not nil, selects more packets to drop.
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

func newNetwork(t testing.TB, seed uint64, bad impairment) *network {
	return &network{t: t, rng: rand.New(rand.NewPCG(seed, 17)), delay: 10 * time.Microsecond, bad: bad}
}

func (n *network) host(cfg Config) *host {
	h := &host{net: n, cfg: cfg, addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(len(n.hosts) >> 8), byte(len(n.hosts))}), wire.Port)}
	h.start()
	n.hosts = append(n.hosts, h)
	return h
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
	if err := k.Parse(p.Payload); err != nil || !wire.CheckCRC(p.Payload) {
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

// step advances the time to the next event, and reports false if there is none until limit.
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

// run steps until done returns true, and fails after the given time.
func (n *network) run(d time.Duration, done func() bool) {
	n.t.Helper()
	limit := n.now.Add(d)
	for !done() {
		if !n.step(limit) {
			n.t.Fatalf("not done after %v", d)
		}
	}
}

// sleep runs the network for a time.
func (n *network) sleep(d time.Duration) {
	for limit := n.now.Add(d); n.step(limit); {
	}
}

// verify checks that the counts and lists of a layer are consistent.
func (l *Layer) verify(t testing.TB) {
	used, bytes, paced, holding := 0, 0, 0, 0
	for _, p := range l.peers {
		if p.has(flagPaced) {
			paced++
		}
		if p.recv.ackAt != mono.Never {
			holding++
		}
		var sacked, lost, count uint16
		for s := p.send.oldest; s != nil; s = s.next {
			if s.seq != p.send.una.Add(int32(count)) {
				t.Fatalf("%v: segment %d at place %d of those from %d on", p.Key, s.seq, count, p.send.una)
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
		if int(count) != p.Waiting() || sacked != p.send.sacked || lost != p.send.lost || p.send.inFlight() < 0 {
			t.Fatalf("%v: %d segments of %d, %d sacked of %d, %d lost of %d, %d in flight", p.Key, count, p.Waiting(), sacked, p.send.sacked, lost, p.send.lost, p.send.inFlight())
		}
		if p.send.outstanding() > 0 && p.send.rto.at == mono.Never {
			t.Fatalf("%v: %d segments outstanding and no timeout", p.Key, p.send.outstanding())
		}
		last := p.recv.next
		for s := p.recv.stored; s != nil; s = s.next {
			if s.seq.Less(last) || s.seq.Sub(p.recv.next) >= wire.Window {
				t.Fatalf("%v: segment %d stored after %d, next is %d", p.Key, s.seq, last, p.recv.next)
			}
			last = s.seq.Add(1)
			bytes += cap(s.buf)
		}
	}
	if paced != l.paced || holding != l.delayedAcks {
		t.Fatalf("%d peers paced, not %d, %d acknowledgements held back, not %d", paced, l.paced, holding, l.delayedAcks)
	}
	if l.lastFound != nil && l.peers[l.lastFound.Key] != l.lastFound {
		t.Fatalf("%v is found, and not known", l.lastFound.Key)
	}
	if used != l.segments.used || bytes != l.cfg.Limits.StoredBytes-l.store.room {
		t.Fatalf("%d segments of %d, %d bytes stored of %d", used, l.segments.used, bytes, l.cfg.Limits.StoredBytes-l.store.room)
	}
}
