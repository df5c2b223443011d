package engine

import (
	"net/netip"
	"slices"

	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// messageKey identifies a message of several packets.
type messageKey struct {
	src   netip.AddrPort
	srcQP uint32
	msn   uint32
	qp    *QP
}

// message is a UD message in reassembly.
type message struct {
	key    messageKey
	until  mono.Time
	opcode ddp.Opcode
	buf    []byte // of MaxUDSend
	have   ranges
	total  uint32 // the length, once the last segment has come
	ends   bool   // it has
}

// messageTable holds the messages in reassembly, oldest first. The search is linear, since
// there are few.
type messageTable struct {
	open  []*message
	free  []*message
	limit int
}

func (t *messageTable) deadline() mono.Time {
	if len(t.open) == 0 {
		return mono.Never
	}
	return t.open[0].until
}

// find returns the message with a key that is being reassembled, or nil.
func (t *messageTable) find(k *messageKey) *message {
	for _, m := range t.open {
		if m.key == *k {
			return m
		}
	}
	return nil
}

// add starts the reassembly of a message. If the table is full, it evicts the oldest.
func (t *messageTable) add(k *messageKey, until mono.Time, op ddp.Opcode) (m *message, dropped bool) {
	if len(t.open) >= t.limit {
		t.drop(0)
		dropped = true
	}
	if n := len(t.free); n > 0 {
		m = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		m = &message{buf: make([]byte, MaxUDSend)}
	}
	*m = message{key: *k, until: until, opcode: op, buf: m.buf, have: ranges{m.have.spans[:0]}}
	t.open = append(t.open, m)
	return m, dropped
}

func (t *messageTable) drop(i int) {
	m := t.open[i]
	t.open = slices.Delete(t.open, i, i+1)
	m.key.qp = nil
	t.free = append(t.free, m)
}

// done removes a complete message.
func (t *messageTable) done(m *message) {
	if i := slices.Index(t.open, m); i >= 0 {
		t.drop(i)
	}
}

// forget removes all messages of a QP.
func (t *messageTable) forget(q *QP) {
	for i := len(t.open) - 1; i >= 0; i-- {
		if t.open[i].key.qp == q {
			t.drop(i)
		}
	}
}

// gatherMessage adds a segment to its message, and returns the message if it is complete.
func (n *NIC) gatherMessage(q *QP, in *inbound) *message {
	u, c := &in.header.Untagged, &in.header.Control
	k := messageKey{src: in.from.src, srcQP: in.from.qp, msn: uint32(u.MSN), qp: q}
	m := n.messages.find(&k)
	if m == nil {
		var dropped bool
		if m, dropped = n.messages.add(&k, n.clock.Add(n.cfg.MessageTime), c.Opcode); dropped {
			n.Count.DropExpired++
		}
	}
	s := span{u.MO, u.MO + uint32(len(in.body))}
	last := uint32(0)
	if l := len(m.have.spans); l > 0 {
		last = m.have.spans[l-1].to
	}
	contradicts := c.Opcode != m.opcode || m.ends && (s.to > m.total || c.Last && s.to != m.total) || c.Last && !m.ends && last > s.to
	if contradicts || !m.have.add(s) {
		n.Count.DropSegment++
		n.messages.done(m)
		return nil
	}
	copy(m.buf[s.from:], in.body)
	if c.Last {
		m.ends, m.total = true, s.to
	}
	if !m.ends || !m.have.whole(m.total) {
		return nil
	}
	return m
}
