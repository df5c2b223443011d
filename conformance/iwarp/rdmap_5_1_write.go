package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

var rdmapWriteCases = []conformance.Case{{
	ID: "rdmap/write/nobody-is-told", Cite: cite("rfc5040/5.1/1"),
	Title:   "A Write consumes no receive and completes nothing",
	Sends:   "Writes of one and of several segments, and a Send",
	Expects: "no completion for the Writes, and the first receive for the Send",
	Defects: []string{"EverythingTakesReceive"}, Run: onConn(func(c *conn) {
		c.send(c.peerWrite(0, data(16)))
		c.sendSegments(c.peerWrite(64, data(64)).Segments(14 + 16))
		c.sync()
		c.ExpectNoCompletion()
		c.expectSendDelivered(1, 16)
		c.ExpectBytes(c.targetMem, 64, data(64))
	}),
}, {
	ID: "rdmap/write/in-order", Cite: cite("rfc5040/5.1/2"),
	Title:   "Writes are sent in the order in which they were posted",
	Sends:   "nothing: the application posts three Writes to one address, and a Send, at once",
	Expects: "the three in that order, and the Send after them",
	Defects: []string{"LIFOQueue"}, Run: onConn(func(c *conn) {
		c.PostSend(c.qp, c.writeWR(1, 0, 16), c.writeWR(2, 16, 16), c.writeWR(3, 32, 16), c.sendWR(4, 0, 16))
		for off := 0; off < 48; off += 16 {
			c.expect(iwarp.Write(peerSTag, peerTO, c.localMem.Buf[off:][:16]))
		}
		c.expect(iwarp.Send(1, c.localMem.Buf[:16]))
	}),
}, {
	ID: "rdmap/write/one-key-for-all-pieces", Cite: cite("rfc5040/5.1/3"),
	Title:   "A Write with several SGEs is one message",
	Sends:   "nothing: the application posts a Write with four SGEs",
	Expects: "one message with the data of all four",
	Defects: []string{"WritePerSGE"},
	Run: onSetup(setup{caps: verbs.QPCaps{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 4, MaxRecvSGE: 1}}, func(c *conn) {
		wr := c.writeWR(1, 0, 0)
		wr.SGL = []verbs.SGE{c.localMem.SGE(300, 20), c.localMem.SGE(100, 12), c.localMem.SGE(0, 4), c.localMem.SGE(200, 64)}
		c.PostSend(c.qp, wr, c.sendWR(2, 0, 16))
		var want []byte
		for _, piece := range [][]byte{c.localMem.Buf[300:320], c.localMem.Buf[100:112], c.localMem.Buf[:4], c.localMem.Buf[200:264]} {
			want = append(want, piece...)
		}
		// 100 octets fit into one segment for every MSS.
		c.expect(iwarp.Write(peerSTag, peerTO, want).Last(true))
		c.expect(iwarp.Send(1, c.localMem.Buf[:16]))
	}),
}}
