package workload

import (
	"encoding/binary"
)

// poison fills memory that nobody is to write to with bytes that follow from
// the connection.
func (c *conn) poison(b []byte) {
	k := derive(c.n.rank.Seed, c.edge.id, c.me, 3)
	var w [8]byte
	for i := range b {
		if i%8 == 0 {
			binary.LittleEndian.PutUint64(w[:], mix(k+uint64(i)))
		}
		b[i] = w[i%8]
	}
}

// verify compares all memory that the peers worked on with what it must hold,
// and counts what never came.
func (n *node) verify() {
	for _, c := range n.conns {
		c.verifyMemory()
		if c.in != nil {
			c.in.verify()
		}
	}
	if n.adds {
		n.verifyWords()
	}
}

// verifyMemory compares the public memory with its model: guards and what was
// never written as they were, and in each slot the last message that it held.
// What a peer wrote and did not live to announce may be there or not.
func (c *conn) verifyMemory() {
	got := c.public.buf
	want := make([]byte, len(got))
	c.poison(want)
	op := c.n.cfg.Op
	l := &c.layout
	fill, upTo := func([]byte, int) {}, 0
	switch {
	case op == OpWrite && c.in != nil:
		fill, upTo = c.in.fill, c.in.next
	case op == OpRead && c.out != nil:
		fill, upTo = c.out.fill, c.out.laid
	}
	for seq := max(0, upTo-l.window); seq < upTo; seq++ {
		at := l.slot(seq)
		fill(want[at:at+c.n.cfg.Bytes], seq)
	}
	checked := len(got)
	if op == OpWrite && c.in != nil && upTo < c.in.total {
		copy(want[slotsAt:len(want)-guardLen], got[slotsAt:])
		checked = slotsAt + guardLen
	}
	c.n.log.checked += int64(checked)
	for i := range got {
		if got[i] != want[i] {
			c.n.log.violation(Contents, "memory of %s that %s works on: byte %d is %#02x in the end, not %#02x", hostOf(c.n.rank.Rank), hostOf(c.peer), i, got[i], want[i])
			return
		}
	}
}

// flow is what the connection's end has exchanged.
func (c *conn) flow() Flow {
	f := Flow{Peer: c.peer, Rail: c.rail.num, Service: c.n.cfg.service()}
	if p := c.out; p != nil {
		f.Posted, f.Acked = p.posted, p.good
	}
	if x := c.in; x != nil {
		f.Posted += x.posted
		f.Acked += x.good
		f.Expected, f.Arrived, f.Duplicates, f.Reordered, f.Bytes = x.total, x.arrived, x.twice, x.swapped, x.bytes
	}
	return f
}
