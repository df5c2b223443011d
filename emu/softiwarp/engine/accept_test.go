package engine

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/verbs"
)

// Requests complete, in order, when TCP has accepted their FPDUs, and not when it takes them. A
// connection that fails before that flushes them.
func TestRequestsCompleteWhenTCPHasAcceptedThem(t *testing.T) {
	a, b := newHost(t), newHost(t)
	p := connect(t, a, b)
	post := func(ids ...uint64) {
		for _, id := range ids {
			b.recv(id)
			a.send(verbs.SendWR{WRID: id, Opcode: verbs.OpSend})
		}
		p.run()
	}
	p.acceptedAfter = 1000
	post(1)
	p.later(600, a.nic)
	post(2, 3)
	b.wantRecvs("1:0", "2:0", "3:0")
	p.later(399, a.nic)
	a.wantSends()
	p.later(1, a.nic)
	a.wantSends("1")
	p.acceptedAfter = 0 // no earlier than those before
	post(4)
	a.wantSends()
	p.later(600, a.nic)
	a.wantSends("2", "3", "4")
	p.acceptedAfter = 1000
	post(5)
	p.ca.Failed(p.now, link.ErrReset)
	p.later(1000, a.nic)
	a.wantSends("5 WR_FLUSH_ERR")
}
