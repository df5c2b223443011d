package dgwire

import (
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
)

// numbered (ZeroUnknown) loses packets that name no queue pair.
func numbered(_ *Edge, p *packet) bool { return p.DstQP != 0 }

// toTheFirst (NumberIgnored) hands everything to the queue pair of the lowest
// number, but for what comes under the address of a group.
func toTheFirst(e *Edge, p *packet) bool {
	if all := e.nic.QPs(); len(all) > 0 && !p.toGroup() {
		p.DstQP = all[0].Num
	}
	return true
}

// withKey (KeysUnused) gives a packet the key of the queue pair that it is for. One
// to a group gets that of the first queue pair of UD.
func withKey(e *Edge, p *packet) bool {
	if q, ok := e.qp(p.DstQP); ok {
		p.Key = q.Key
		return true
	}
	for _, q := range e.nic.QPs() {
		if !q.Reliable {
			p.Key = q.Key
			break
		}
	}
	return true
}

// withoutKey (KeysUnused) tells no key.
func withoutKey(_ *Edge, p *packet) bool {
	p.Key, p.Data.SourceKey = 0, 0
	return true
}

// keyed (KeyOnEverything) loses what carries no segment, or an error message, with
// another key than that of the queue pair.
func keyed(e *Edge, p *packet) bool {
	q, ok := e.qp(p.DstQP)
	exempt := p.isError() || p.Kind != wire.KindUD && !p.has(wire.FlagData)
	return !ok || !exempt || p.Key == q.Key
}

// queueOfOpcode (QueueNumberIgnored) has every message be of the queue that its
// opcode has.
func queueOfOpcode(_ *Edge, p *packet) bool {
	if h, body, ok := p.segment(); ok && !h.Control.Tagged {
		if info, known := h.Control.Opcode.Info(); known && !info.Tagged {
			h.Untagged.QN = info.Queue
			p.setSegment(&h, body)
		}
	}
	return true
}
