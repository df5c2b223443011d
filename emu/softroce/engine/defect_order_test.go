package engine

import (
	"bytes"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// orderDefects are about requests that come out of their order, twice, or when no
// receive is there.
var orderDefects = map[string]defectCase{
	"OpcodeOrderIgnored": {
		talk: func(c *talk) {
			c.recv(1, 2048)
			c.recv(2, 2048)
			c.send(wire.OpSendMiddle, 0, data(1024)) // begins a message
			c.send(wire.OpWriteLast, 1, data(8), ackReq)
			c.hear()
			c.done()
			c.send(wire.OpWriteMiddle, 2, data(1024), ackReq)
			c.hear()
			c.send(wire.OpSendFirst, 3, data(1024))
			c.send(wire.OpSendOnly, 4, data(4), ackReq)
			c.hear()
			c.done()
		},
		sound:     "NAK 0 invalid msn 0; 1 WR_FLUSH_ERR; 2 WR_FLUSH_ERR; silence; silence; no completion",
		defective: "ACK 1 msn 1; 1 SUCCESS RECV 1032B; ACK 2 msn 1; ACK 4 msn 2; 2 SUCCESS RECV 4B",
	},
	"OrderBeforePSN": {
		talk: func(c *talk) {
			c.send(wire.OpSendLast, 3, data(8))
			c.hear()
			c.standing()
		},
		sound:     "NAK 0 sequence msn 0; RTS",
		defective: "NAK 0 invalid msn 0; ERR",
	},
	"LastCompletesTwice": {
		talk: func(c *talk) {
			c.recv(1, 2048)
			c.recv(2, 2048)
			c.send(wire.OpSendFirst, 0, data(1024))
			c.send(wire.OpSendLastImm, 1, data(8), imm(7))
			c.done()
		},
		sound:     "1 SUCCESS RECV 1032B imm 00000007",
		defective: "1 SUCCESS RECV 1032B imm 00000007; 2 SUCCESS RECV imm 00000007",
	},
	"NAKStorm": {
		talk: func(c *talk) {
			for k := range 3 {
				c.deliver(c.write(k + 1))
				c.hear()
			}
		},
		sound:     "NAK 0 sequence msn 0; silence; silence",
		defective: "NAK 0 sequence msn 0; NAK 0 sequence msn 0; NAK 0 sequence msn 0",
	},
	"DuplicateImmReceives": {
		talk: func(c *talk) {
			for id := range uint64(4) {
				c.recv(id, 8)
			}
			imm := func(k *wire.Packet) { k.Imm = 7 }
			for range 2 {
				c.send(wire.OpWriteOnlyImm, 0, c.at(0, 4), data(4), imm)
				c.send(wire.OpSendOnly, 1, data(8))
			}
			c.skip()
			c.done()
		},
		sound:     "0 SUCCESS RECV_RDMA_WITH_IMM 4B imm 00000007; 1 SUCCESS RECV 8B",
		defective: "0 SUCCESS RECV_RDMA_WITH_IMM 4B imm 00000007; 1 SUCCESS RECV 8B; 2 SUCCESS RECV_RDMA_WITH_IMM imm 00000007",
	},
	"NAKOnlyOnce": {
		talk: func(c *talk) {
			for _, k := range []int{1, 0, 2} {
				c.deliver(c.write(k))
				c.hear()
			}
		},
		sound:     "NAK 0 sequence msn 0; ACK 0 msn 1; NAK 1 sequence msn 1",
		defective: "NAK 0 sequence msn 0; ACK 0 msn 1; silence",
	},
	"EarlyExecution": {
		talk: func(c *talk) {
			c.recv(1, 8)
			c.send(wire.OpSendOnly, 1, data(8))
			c.send(wire.OpWriteOnly, 2, c.at(0, 8), payload([]byte("too soon")))
			c.hear()
			c.done()
			c.note("placed: %v", string(c.target(0, 8)) == "too soon")
			c.deliver(c.write(0))
			c.hear()
		},
		sound:     "NAK 0 sequence msn 0; no completion; placed: false; ACK 0 msn 1",
		defective: "NAK 0 sequence msn 0; 1 SUCCESS RECV 8B; placed: true; ACK 0 msn 1",
	},
	"PSNHalvesUneven": {
		talk: func(c *talk) {
			c.deliver(c.write(1<<22 - 1))
			c.hear()
			c.deliver(c.write(0))
			c.hear()
			c.deliver(c.write(1<<22 + 1))
			c.hear()
		},
		sound:     "NAK 0 sequence msn 0; ACK 0 msn 1; NAK 1 sequence msn 1",
		defective: "NAK 0 sequence msn 0; ACK 0 msn 1; ACK 0 msn 1",
	},
	"PSNStartsAtZero": {
		talk: func(c *talk) {
			c.post(1, verbs.OpSend, 8)
			c.skip()
			c.note("sent %d", c.got[0].BTH.PSN)
			c.deliver(c.build(wire.OpWriteOnly, 0, c.at(0, 4), data(4), ackReq, func(k *wire.Packet) { k.BTH.PSN = 0 }))
			c.skip()
			a := c.q.Query()
			c.note("%d WRITE taken, PSNs %+d and %+d", c.q.resp.msn, a.SQPSN-uint32(c.sq), a.RQPSN-uint32(c.rq))
		},
		sound:     "sent 500; 0 WRITE taken, PSNs +1 and +0",
		defective: "sent 0; 1 WRITE taken, PSNs +1 and +1",
	},
	"DuplicatesExecuted": {
		talk: func(c *talk) {
			clear(c.target(128, 8))
			c.recv(1, 8)
			c.recv(2, 8)
			c.send(wire.OpSendOnly, 0, data(8))
			c.send(wire.OpWriteOnly, 1, c.at(0, 8), data(8))
			c.send(wire.OpFetchAdd, 2, c.word(128, 5, 0))
			c.skip()
			c.send(wire.OpSendOnly, 0, data(8))
			c.send(wire.OpWriteOnly, 1, c.at(0, 8), payload([]byte("repeated")))
			c.hear()
			c.send(wire.OpFetchAdd, 2, c.word(128, 7, 0))
			c.hear()
			c.done()
			c.note("%q, %d", c.target(0, 8), c.wordValue(c.target(128, 8)))
		},
		sound: "ACK 2 msn 3; ATOMIC_ACKNOWLEDGE 2 was 0 msn 3; 1 SUCCESS RECV 8B; " +
			`"\x12\x19 '.5<C", 5`,
		defective: "ACK 2 msn 3; ATOMIC_ACKNOWLEDGE 2 was 5 msn 3; 1 SUCCESS RECV 8B; 2 SUCCESS RECV 8B; " +
			`"repeated", 12`,
	},
	"MSNCountsPackets": {
		talk: func(c *talk) {
			c.send(wire.OpWriteFirst, 0, c.at(0, 1028), data(1024))
			c.send(wire.OpWriteLast, 1, data(4), ackReq)
			c.hear()
			c.send(wire.OpWriteLast, 1, data(4), ackReq)
			c.hear()
			c.send(wire.OpSendOnly, 2, data(4))
			c.hear()
		},
		sound:     "ACK 1 msn 1; ACK 1 msn 1; RNR 2 code 12 msn 1",
		defective: "ACK 1 msn 2; ACK 1 msn 3; RNR 2 code 12 msn 4",
	},
	"RNRLeavesTraces": {
		talk: func(c *talk) {
			want := []byte("too soon")
			write := c.build(wire.OpWriteOnlyImm, 0, c.at(0, 8), payload(want), ackReq)
			repeat := write
			repeat.Payload = bytes.Clone(write.Payload)
			c.deliver(write)
			c.hear()
			c.note("placed: %v", bytes.Equal(c.target(0, 8), want))
			c.recv(1, 8)
			c.deliver(repeat)
			c.hear()
			c.done()
		},
		sound:     "RNR 0 code 12 msn 0; placed: false; ACK 0 msn 1; 1 SUCCESS RECV_RDMA_WITH_IMM 8B imm 00000000",
		defective: "RNR 0 code 12 msn 0; placed: true; ACK 0 msn 0; no completion",
	},
	"RNRRestartsMessage": {
		talk: func(c *talk) {
			c.send(wire.OpWriteFirst, 0, c.at(0, 1028), data(1024))
			c.send(wire.OpWriteLastImm, 1, data(4))
			c.hear()
			c.recv(1, 8)
			c.send(wire.OpWriteLastImm, 1, data(4), ackReq)
			c.hear()
		},
		sound:     "RNR 1 code 12 msn 0; ACK 1 msn 1",
		defective: "RNR 1 code 12 msn 0; NAK 1 invalid msn 0",
	},
}
