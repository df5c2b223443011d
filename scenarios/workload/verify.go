package workload

import (
	"github.com/fabrictest/fabrictest/traffic"
)

// fillGuard fills memory that the peer must not write with bytes that depend on the
// connection.
func (l *link) fillGuard(b []byte) {
	traffic.Fill(b, traffic.Derive(l.rank.Seed, l.edge.id, l.side, 3))
}

// verify compares the public memory with its model, and reports lost messages.
func (n *node) verify() {
	for _, c := range n.conns {
		c.verifyMemory()
		if c.in != nil {
			c.in.verify(c.finished())
		}
	}
	if n.addsAtomics {
		n.verifyAtomics()
	}
}

// verifyMemory compares public memory with its model: intact guards, and the last message
// in each slot. Messages that a failed peer wrote but did not announce may be there or not.
func (c *conn) verifyMemory() {
	got := c.public.buf
	want := make([]byte, len(got))
	c.fillGuard(want)
	op := c.cfg.Op
	l := &c.layout
	fill, upTo := func([]byte, int) {}, 0
	switch {
	case op == OpWrite && c.in != nil:
		fill, upTo = c.in.Fill, c.in.next
	case op == OpRead && c.out != nil:
		fill, upTo = c.out.Fill, c.out.published
	}
	for seq := max(0, upTo-l.window); seq < upTo; seq++ {
		at := l.slot(seq)
		fill(want[at:at+c.cfg.Bytes], seq)
	}
	checked := len(got)
	if op == OpWrite && c.in != nil && upTo < c.in.total {
		copy(want[slotsAt:len(want)-guardLen], got[slotsAt:])
		checked = slotsAt + guardLen
	}
	c.log.checked += int64(checked)
	for i := range got {
		if got[i] != want[i] {
			c.log.violation(traffic.Contents, "memory of %s that %s accesses: byte %d is %#02x at the end, not %#02x", c.host(), hostOf(c.peer.rank), i, got[i], want[i])
			return
		}
	}
}

// flow returns the counters of the connection.
func (c *conn) flow() Flow {
	f := Flow{Peer: c.peer.rank, Rail: c.rail.num, Service: c.cfg.service()}
	if p := c.out; p != nil {
		f.Posted, f.Acked = p.posted, p.completed
	}
	if x := c.in; x != nil {
		f.Posted += x.posted
		f.Acked += x.completed
		f.Expected, f.Arrived, f.Duplicates, f.Reordered, f.Bytes = x.total, x.arrived, x.duplicates, x.reordered, x.bytes
	}
	return f
}
