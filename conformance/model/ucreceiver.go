package model

import (
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
)

// receiveUC takes a packet of UC. A message that cannot be received whole is dropped silently, its
// receive is not used, and the next message may begin at any later PSN. The result is false if the
// specification leaves the reaction open.
func (m *RCResponder) receiveUC(p ib.Packet) bool {
	info, known := p.Info()
	ahead := p.PSN().Sub(m.psn)
	if !known || ahead < 0 {
		return false // a duplicate may be received again
	}
	begins := info.Position == ib.First || info.Position == ib.Only
	if begins || ahead > 0 {
		m.drop()
	}
	if !begins && m.open == nil {
		m.psn = p.PSN().Add(1)
		return true
	}
	if faults := m.faults(p, info, known); len(faults) > 0 {
		if faults[0].receives != nil {
			return false // a receive that is too short, or may not be written
		}
		m.drop()
		m.psn = p.PSN().Add(1)
		return true
	}
	m.psn = p.PSN()
	m.execute(p, info)
	return true
}

// drop discards the open message, if there is one. Any of its bytes may have been placed, and its
// receive is used for the next message.
func (m *RCResponder) drop() {
	msg := m.open
	if msg == nil {
		return
	}
	m.open, m.reaction.Dropped = nil, true
	if msg.mem != nil {
		msg.mem.abandon()
	}
	if r := msg.receive; r != nil {
		r.Mem.abandon()
		m.Receives[msg.queue] = append([]*RCReceive{r}, m.Receives[msg.queue]...)
	}
}
