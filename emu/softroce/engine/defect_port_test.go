package engine

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// portDefects are about headers and checks that all packets have in common.
var portDefects = map[string]defectCase{
	"ICRCWrong": {
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8)
			c.skip()
			c.note("ICRC right: %v", c.intact(0))
		},
		sound:     "ICRC right: true",
		defective: "ICRC right: false",
	},
	"FlushICRCDoubled": {
		talk: func(c *talk) {
			flush := c.build(wire.OpFlush, 0, c.at(0, 8), func(k *wire.Packet) {
				k.FETH.Placement = wire.Placement(verbs.FlushGlobal)
			})
			icrc := wire.NewICRC(flush.Src, flush.Dst)
			doubled, body := flush, flush.Payload[:len(flush.Payload)-wire.ICRCLen]
			doubled.Payload = binary.LittleEndian.AppendUint32(bytes.Clone(body),
				crc32.Update(icrc.Sum(uint16(flush.IPID), body), crc32.IEEETable, body))
			c.deliver(flush)
			c.hear()
			c.deliver(doubled)
			c.hear()
			c.post(1, verbs.OpFlush, 0, func(wr *verbs.SendWR) { wr.Flush = verbs.Flush{Type: verbs.FlushGlobal, Length: 8} })
			c.post(2, verbs.OpSend, 8)
			c.skip()
			for i := range c.heard {
				c.note("ICRC right: %v", c.intact(i))
			}
		},
		sound:     "RR_ONLY 0 msn 1; silence; ICRC right: true; ICRC right: true",
		defective: "silence; RR_ONLY 0 msn 1; ICRC right: false; ICRC right: true",
	},
	"ICRCIgnored": {
		talk: func(c *talk) {
			d := c.build(wire.OpWriteOnly, 0, c.at(0, 4), data(4), ackReq)
			d.Payload[len(d.Payload)-5] ^= 1 // the last byte of data
			c.deliver(d)
			c.hear()
		},
		sound:     "silence",
		defective: "ACK 0 msn 1",
	},
	"ECNFromTClass": {
		setup: setup{attr: func(a *verbs.QPAttr) { a.AH.GRH.TrafficClass = 0x6b }},
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8)
			c.skip()
			c.note("traffic class %#x", c.heard[0].TClass)
		},
		sound:     "traffic class 0x6a", // ECT(0)
		defective: "traffic class 0x6b", // congested before it has left
	},
	"FixedHopLimit": {
		setup: setup{attr: func(a *verbs.QPAttr) { a.AH.GRH.HopLimit = 7 }},
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8)
			c.skip()
			c.note("hop limit %d", c.heard[0].HopLimit)
		},
		sound:     "hop limit 7",
		defective: "hop limit 64",
	},
	"NoCreditReporting": {
		talk: func(c *talk) {
			for id := range uint64(4) {
				c.recv(id, 8)
			}
			c.send(wire.OpSendOnly, 0, data(8), ackReq)
			c.skip()
			n, counted := wire.CreditCount(c.got[0].AETH.Syndrome.Value())
			c.note("counted: %v", counted)
			if counted {
				c.note("%d receives", n)
			}
		},
		sound:     "counted: true; 3 receives",
		defective: "counted: false",
	},
}

// intact checks the ICRC of a packet heard.
func (c *talk) intact(i int) bool {
	d := &c.heard[i]
	return wire.NewICRC(d.Src, d.Dst).Check(0, d.Payload)
}
