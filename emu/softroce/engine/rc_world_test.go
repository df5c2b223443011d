package engine

import (
	"container/heap"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// choices is the source of random decisions: a generator, or the bytes of a fuzzer.
type choices interface {
	// pick returns a number in [0, n). Zero must lead to an end: it is all that
	// comes when a fuzzer has no more bytes.
	pick(n int) int
}

// weather has the impairments of a network.
type weather struct {
	lossPercent    int
	dupPercent     int
	corruptPercent int
	reorderPercent int
	delayMax       time.Duration // of a packet that is reordered
	// dropsMax is how often one and the same packet may be lost; 0 means any
	// number of times.
	dropsMax int
}

// lossyNet connects two hosts with delay and the impairments of weather.
type lossyNet struct {
	weather
	luck  choices
	now   mono.Time
	hosts [2]*host
	queue eventQueue
	seq   int
	last  [2]mono.Time // latest arrival at each host, for those kept in order
	drops map[packetID]int
	batch []link.Datagram
	lost  int
	moved int
}

// packetID identifies a packet; retransmissions have the same ID.
type packetID struct {
	dst      int
	response bool
	psn      wire.PSN
	qpn      uint32
}

// event is a scheduled action; d is set for arrivals only.
type event struct {
	at  mono.Time
	seq int
	dst int
	d   *link.Datagram
	do  func()
}

type eventQueue []event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *eventQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

func newLossyNet(luck choices, w weather, a, b *host) *lossyNet {
	n := &lossyNet{weather: w, luck: luck, hosts: [2]*host{a, b}, drops: map[packetID]int{}, batch: make([]link.Datagram, 32)}
	for i := range n.batch {
		n.batch[i].Payload = make([]byte, 0, 4200)
	}
	return n
}

func (n *lossyNet) schedule(at mono.Time, do func()) {
	n.seq++
	heap.Push(&n.queue, event{at: at, seq: n.seq, do: do})
}

// step executes the next event. It reports false if there is none.
func (n *lossyNet) step() bool {
	// Sometimes a NIC gets several packets before it can send.
	if n.luck.pick(4) < 3 {
		for i := range n.hosts {
			n.drain(i)
		}
	}
	next := mono.Never
	if len(n.queue) > 0 {
		next = n.queue[0].at
	}
	for _, h := range n.hosts {
		next = min(next, h.nic.Deadline())
	}
	if next == mono.Never {
		return n.drain(0)+n.drain(1) > 0
	}
	n.now = max(n.now, next)
	for _, h := range n.hosts {
		h.nic.Tick(n.now)
	}
	if len(n.queue) > 0 && n.queue[0].at <= n.now {
		e := heap.Pop(&n.queue).(event)
		if e.do != nil {
			e.do()
		} else {
			n.hosts[e.dst].nic.Input(n.now, e.d)
		}
	}
	return true
}

// drain sends the packets of host i.
func (n *lossyNet) drain(i int) int {
	total := 0
	for {
		size := 1 + n.luck.pick(len(n.batch))
		k := n.hosts[i].nic.Output(n.now, n.batch[:size])
		for j := range k {
			n.carry(&n.batch[j], 1-i)
		}
		if total += k; k < size {
			return total
		}
	}
}

func (n *lossyNet) percent(p int) bool { return p > 0 && n.luck.pick(100) >= 100-p }

// carry schedules the arrival of a packet, or drops it.
func (n *lossyNet) carry(d *link.Datagram, dst int) {
	n.moved++
	if n.percent(n.lossPercent) && n.mayDrop(d, dst) {
		n.lost++
		return
	}
	n.arrive(d, dst)
	if n.percent(n.dupPercent) {
		n.arrive(d, dst)
	}
}

func (n *lossyNet) mayDrop(d *link.Datagram, dst int) bool {
	if n.dropsMax == 0 {
		return true
	}
	var h wire.BTH
	if _, err := h.Parse(d.Payload); err != nil {
		return false
	}
	info, _ := h.Opcode.Info()
	id := packetID{dst: dst, response: info.Class.Has(wire.Response), psn: h.PSN, qpn: h.DestQP}
	if n.drops[id] >= n.dropsMax {
		return false
	}
	n.drops[id]++
	return true
}

func (n *lossyNet) arrive(d *link.Datagram, dst int) {
	c := *d
	c.Payload = append([]byte(nil), d.Payload...)
	c.IPID = 0
	if n.percent(n.corruptPercent) && n.mayDrop(d, dst) {
		n.lost++
		bit := n.luck.pick(len(c.Payload) * 8)
		c.Payload[bit/8] ^= 1 << (bit % 8)
		if bit/8 == 4 {
			n.lost-- // the ICRC does not cover it: the packet is as good as new
		}
	}
	at := n.now + 1000 + mono.Time(n.luck.pick(4000))
	if n.percent(n.reorderPercent) {
		at += mono.Time(n.luck.pick(int(n.delayMax)))
	} else {
		at = max(at, n.last[dst])
		n.last[dst] = at
	}
	n.seq++
	heap.Push(&n.queue, event{at: at, seq: n.seq, dst: dst, d: &c})
}
