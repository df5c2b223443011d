package engine

import (
	"net/netip"
	"slices"

	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// messageKey identifies a message of several packets that a QP receives.
type messageKey struct {
	src   netip.AddrPort
	srcQP uint32
	msn   uint32
	qp    *QP
}

// partial is the common part of messages and records of which segments are missing.
type partial struct {
	key   messageKey
	until mono.Time // when it is dropped or, for a record, completed
	have  ranges    // received octets
}

// common implements the constraint of partialTable.
func (p *partial) common() *partial { return p }

// message is a UD message in reassembly.
type message struct {
	partial
	opcode     ddp.Opcode
	buf        []byte // of MaxUDSend
	total      uint32 // the length
	totalKnown bool   // the last segment has come
}

// partialTable holds incomplete messages or records, oldest first. They are few: search is linear.
type partialTable[T interface {
	comparable
	common() *partial
}] struct {
	open  []T
	free  []T // for reuse
	limit int // of open
}

// deadline returns when the oldest entry expires, or mono.Never.
func (t *partialTable[T]) deadline() mono.Time {
	if len(t.open) == 0 {
		return mono.Never
	}
	return t.open[0].common().until
}

// find returns the entry with a key, or nil.
func (t *partialTable[T]) find(k *messageKey) (none T) {
	for _, p := range t.open {
		if p.common().key == *k {
			return p
		}
	}
	return none
}

// reuse returns an entry that was removed, or nil.
func (t *partialTable[T]) reuse() (p T) {
	if n := len(t.free); n > 0 {
		p = t.free[n-1]
		t.free = t.free[:n-1]
	}
	return p
}

// drop removes entry i, and keeps it for reuse.
func (t *partialTable[T]) drop(i int) {
	p := t.open[i]
	t.open = slices.Delete(t.open, i, i+1)
	p.common().key.qp = nil
	t.free = append(t.free, p)
}

// remove removes p, if it is in the table.
func (t *partialTable[T]) remove(p T) {
	if i := slices.Index(t.open, p); i >= 0 {
		t.drop(i)
	}
}

// forget removes all entries of a QP.
func (t *partialTable[T]) forget(q *QP) {
	for i := len(t.open) - 1; i >= 0; i-- {
		if t.open[i].common().key.qp == q {
			t.drop(i)
		}
	}
}

// addMessage starts the reassembly of a message. If there are too many, it drops the oldest.
func (n *NIC) addMessage(k *messageKey, op ddp.Opcode) *message {
	t := &n.messages
	if len(t.open) >= t.limit {
		t.drop(0)
		n.Count.DropExpired++
	}
	m := t.reuse()
	if m == nil {
		m = &message{buf: make([]byte, MaxUDSend)}
	}
	until := n.clock.Add(n.cfg.MessageTime)
	*m = message{partial: partial{*k, until, ranges{m.have.spans[:0]}}, opcode: op, buf: m.buf}
	t.open = append(t.open, m)
	return m
}

// gatherMessage adds a segment to its message, and returns the message if it is complete; the
// caller removes it. It drops a message whose segments leave too many gaps or contradict each
// other: they differ in opcode, or one is beyond the end that a Last segment sets.
func (n *NIC) gatherMessage(q *QP, in *inbound) *message {
	u, c := &in.header.Untagged, &in.header.Control
	k := messageKey{src: in.from.src, srcQP: in.from.qp, msn: uint32(u.MSN), qp: q}
	m := n.messages.find(&k)
	if m == nil {
		m = n.addMessage(&k, c.Opcode)
	}
	s := span{u.MO, u.MO + uint32(len(in.body))}
	highest := uint32(0) // end of the received octets
	if l := len(m.have.spans); l > 0 {
		highest = m.have.spans[l-1].to
	}
	contradicts := c.Opcode != m.opcode || m.totalKnown && (s.to > m.total || c.Last && s.to != m.total) || c.Last && !m.totalKnown && highest > s.to
	if contradicts || !m.have.add(s) {
		n.Count.DropSegment++
		n.messages.remove(m)
		return nil
	}
	copy(m.buf[s.from:], in.body)
	if c.Last {
		m.totalKnown, m.total = true, s.to
	}
	if !m.totalKnown || !m.have.whole(m.total) {
		return nil
	}
	return m
}
