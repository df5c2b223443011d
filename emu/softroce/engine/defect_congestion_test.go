package engine

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// congestionDefects are about marks, and the notifications that answer them.
var congestionDefects = map[string]defectCase{
	"NoCongestion": {
		talk: func(c *talk) {
			c.marked(c.write(0))
			c.hear()
			full := c.q.RateBps()
			c.deliver(c.build(0, 0, func(k *wire.Packet) {
				k.BTH.Opcode, k.Payload = wire.CNP, make([]byte, wire.CNPPayloadLen)
			}))
			c.note("slows down: %v", c.q.RateBps() < full)
		},
		sound:     "CNP; ACK 0 msn 1; slows down: true",
		defective: "ACK 0 msn 1; slows down: false",
	},
	"CNPBurst": {
		talk: func(c *talk) {
			c.marked(c.write(0))
			c.hear()
			c.marked(c.write(1))
			c.hear()
		},
		sound:     "CNP; ACK 0 msn 1; ACK 1 msn 2",
		defective: "CNP; ACK 0 msn 1; CNP; ACK 1 msn 2",
	},
	"CNPOnNAK": {
		talk: func(c *talk) {
			c.deliver(c.write(1))
			c.hear()
		},
		sound:     "NAK 0 sequence msn 0",
		defective: "CNP; NAK 0 sequence msn 0",
	},
	"CNPPerPort": {talk: marksOfThree, sound: "3 CNPs", defective: "1 CNPs"},
	"CNPPerPeer": {talk: marksOfThree, sound: "3 CNPs", defective: "2 CNPs"},
	"MarkedDropped": {
		talk: func(c *talk) {
			c.marked(c.write(0))
			c.hear()
			c.deliver(c.write(0))
			c.hear()
		},
		sound:     "CNP; ACK 0 msn 1; ACK 0 msn 1",
		defective: "CNP; ACK 0 msn 1",
	},
	"CNPCounterStuck": {
		talk: func(c *talk) {
			c.marked(c.write(0))
			c.hear()
			c.note("counted: %d", c.h.nic.Count.CNPsSent)
		},
		sound:     "CNP; ACK 0 msn 1; counted: 1",
		defective: "CNP; ACK 0 msn 1; counted: 0",
	},
}

// marksOfThree marks packets of three QPs at the same time. Two of them are
// connected to one address, the third to another.
func marksOfThree(c *talk) {
	c.marked(c.write(0))
	c.q = c.another(nil)
	c.marked(c.write(0))
	c.q = c.h.qp(verbs.QPTypeRC, nil)
	c.h.ready(c.q, otherAddr, peerQPN, nil)
	d := c.write(0)
	d.Src = netip.AddrPortFrom(otherAddr, d.Src.Port())
	c.seal(&d)
	c.marked(d)
	c.skip()
	n := 0
	for _, k := range c.got {
		if k.BTH.Opcode == wire.CNP {
			n++
		}
	}
	c.note("%d CNPs", n)
}
