package rocewire

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// lateness is how long answers are held back that come late.
const lateness = mono.Time(10 * time.Millisecond)

// holdNAK (NAKLate) and holdCNP (CNPLate) keep a packet until its time has come.
func holdNAK(e *Edge, p *packet) bool {
	s, ok := p.syndrome()
	return !ok || !p.is(wire.OpAcknowledge) || s != wire.Nak(wire.NakPSNSequence) || e.hold(p)
}

func holdCNP(e *Edge, p *packet) bool { return p.opcode() != wire.CNP || e.hold(p) }

func (e *Edge) hold(p *packet) bool {
	e.late = append(e.late, *p)
	return false
}

// releaseLate queues what has been held for long enough.
func (e *Edge) releaseLate(now mono.Time) {
	for len(e.late) > 0 && now >= e.late[0].now+lateness {
		e.queue = append(e.queue, e.late[0])
		e.late = e.late[1:]
	}
}

// Deadline is when the first delayed packet must be sent; mono.Never if none is delayed.
func (e *Edge) Deadline() mono.Time {
	if len(e.late) == 0 {
		return mono.Never
	}
	return e.late[0].now + lateness
}
