package engine

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
)

// lateness is how much too late a NIC does what a defect delays.
const lateness = time.Millisecond

// appointment is something that is done later than it should be.
type appointment struct {
	at mono.Time
	do func()
}

// later does something too late.
func (n *NIC) later(do func()) {
	n.late = append(n.late, appointment{n.clock.Add(lateness), do})
}

// doLate does what is due.
func (n *NIC) doLate(now mono.Time) {
	for len(n.late) > 0 && n.late[0].at <= now {
		do := n.late[0].do
		n.late = n.late[1:]
		do()
	}
}

// showOwnDepths is Defects.OwnDepthsReported: in place of what the peer's frame
// says, what we asked for, or have.
func (c *Conn) showOwnDepths() {
	ird, ord := c.param.IRD, c.param.ORD
	if !c.initiator {
		ird = uint16(c.nic.cfg.Limits.RdAtomic)
		ord = ird
	}
	c.peer.Enhanced, c.peer.PeerIRD, c.peer.PeerORD = true, ird, ord
}
