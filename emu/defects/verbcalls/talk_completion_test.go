package verbcalls

import (
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// completionTalks are about what completions say.
var completionTalks = map[string]defectTalk{
	"SparseCompletions": {
		talk: func(c *talk) {
			c.connect()
			c.dev.post(c.dev.wr(1, verbs.OpRDMARead))
			c.dev.recv(2, 3)
			imm := c.peer.wr(0, verbs.OpRDMAWriteImm)
			c.peer.post(imm)
			bad := c.dev.wr(4, verbs.OpRDMARead)
			bad.Remote.RKey++
			c.dev.done()
			c.dev.post(bad)
			c.dev.done()
		},
		sound:     "2 SUCCESS 8B; 1 SUCCESS 8B; 4 REM_ACCESS_ERR 0B; 3 WR_FLUSH_ERR 0B",
		defective: "2 SUCCESS 0B; 1 SUCCESS 0B; 0 REM_ACCESS_ERR 0B; of nobody; 0 WR_FLUSH_ERR 0B; of nobody",
	},
	"WCOpcodeZero": {
		talk:      func(c *talk) { c.note("%v", c.received(verbs.OpSendImm).Opcode) },
		sound:     "IBV_WC_RECV",
		defective: "IBV_WC_SEND",
	},
	"WCLengthZero": {
		talk:      func(c *talk) { c.note("%d", c.received(verbs.OpSendImm).ByteLen) },
		sound:     "8",
		defective: "0",
	},
	"WCFlagsLost": {
		talk: func(c *talk) {
			wc := c.received(verbs.OpSendImm)
			c.note("%v %#x", wc.Flags, wc.Imm)
		},
		sound:     "2 0x1020304",
		defective: "0 0x0",
	},
	"ImmSwapped": {
		talk:      func(c *talk) { c.note("%#x", c.received(verbs.OpSendImm).Imm) },
		sound:     "0x1020304",
		defective: "0x4030201",
	},
	"WCQPNWrong": {
		talk: func(c *talk) {
			c.dev.qp = c.dev.newQP(nil)
			c.note("%v", c.received(verbs.OpSend).QPN == c.dev.qp.QPN())
		},
		sound:     "true",
		defective: "false",
	},
	"SrcQPLost": {
		talk: func(c *talk) {
			c.dev.datagrams()
			c.peer.datagrams()
			c.dev.recv(1)
			c.peer.post(c.peer.datagram(2, c.peer.pd))
			c.note("%v", c.dev.next().SrcQP == c.peer.qp.QPN())
		},
		sound:     "true",
		defective: "false",
	},
	"WRID32": {
		talk: func(c *talk) {
			c.connect()
			c.dev.post(c.dev.wr(5<<32|7, verbs.OpRDMAWrite))
			c.note("%d", c.dev.next().WRID>>32)
		},
		sound:     "5",
		defective: "0",
	},
	"WCDoubled": {
		talk:      func(c *talk) { c.written(5) },
		sound:     "1 SUCCESS 0B; 2 SUCCESS 0B; 3 SUCCESS 0B; 4 SUCCESS 0B; 5 SUCCESS 0B",
		defective: "1 SUCCESS 0B; 2 SUCCESS 0B; 3 SUCCESS 0B; 4 SUCCESS 0B; 4 SUCCESS 0B; 5 SUCCESS 0B",
	},
	"WCLost": {
		talk:      func(c *talk) { c.written(5) },
		sound:     "1 SUCCESS 0B; 2 SUCCESS 0B; 3 SUCCESS 0B; 4 SUCCESS 0B; 5 SUCCESS 0B",
		defective: "1 SUCCESS 0B; 2 SUCCESS 0B; 3 SUCCESS 0B; 5 SUCCESS 0B",
	},
	"FlushReversed": {
		talk: func(c *talk) {
			c.connect()
			c.dev.recv(1, 2)
			bad := c.dev.wr(4, verbs.OpRDMARead)
			bad.Remote.RKey++
			c.dev.post(c.dev.wr(3, verbs.OpRDMAWrite), bad, c.dev.wr(5, verbs.OpRDMAWrite))
			c.dev.done()
		},
		sound:     "3 SUCCESS 0B; 4 REM_ACCESS_ERR 0B; 5 WR_FLUSH_ERR 0B; 1 WR_FLUSH_ERR 0B; 2 WR_FLUSH_ERR 0B",
		defective: "3 SUCCESS 0B; 2 WR_FLUSH_ERR 0B; 1 WR_FLUSH_ERR 0B; 5 WR_FLUSH_ERR 0B; 4 REM_ACCESS_ERR 0B",
	},
	"FlushesLost": {
		talk: func(c *talk) {
			c.connect()
			c.dev.recv(1)
			bad := c.dev.wr(2, verbs.OpRDMARead)
			bad.Remote.RKey++
			c.dev.post(bad)
			c.dev.done()
		},
		sound:     "2 REM_ACCESS_ERR 0B; 1 WR_FLUSH_ERR 0B",
		defective: "2 REM_ACCESS_ERR 0B",
	},
	"LengthErrorsHidden": {
		talk: func(c *talk) {
			c.connect()
			_ = must.Get(c.dev.qp.PostRecv([]verbs.RecvWR{{WRID: 1, SGL: []verbs.SGE{verbs.SGEOf(c.dev.mr, 0, 4)}}}))(c)
			c.peer.post(c.peer.wr(2, verbs.OpSend))
			wc := c.dev.next()
			c.note("%v %v", wc.Status, wc.Opcode)
		},
		sound:     "IBV_WC_LOC_LEN_ERR IBV_WC_SEND",
		defective: "IBV_WC_SUCCESS IBV_WC_RECV",
	},
	"UnsignaledErrorsLost": {
		talk: func(c *talk) {
			c.connect()
			c.dev.recv(3)
			bad := c.dev.wr(1, verbs.OpRDMARead)
			bad.Remote.RKey++
			bad.Flags = 0
			c.dev.post(bad, c.dev.wr(2, verbs.OpRDMARead))
			c.dev.done()
		},
		sound:     "1 REM_ACCESS_ERR 0B; 2 WR_FLUSH_ERR 0B; 3 WR_FLUSH_ERR 0B",
		defective: "2 WR_FLUSH_ERR 0B; 3 WR_FLUSH_ERR 0B",
	},
}

// received is the completion of a message that the peer sends by op.
func (c *talk) received(op verbs.WROpcode) verbs.WC {
	c.Helper()
	c.connect()
	c.dev.recv(1)
	wr := c.peer.wr(2, op)
	wr.Imm = 0x01020304
	c.peer.post(wr)
	return c.dev.next()
}

// next waits for a completion of the side.
func (s *side) next() (wc verbs.WC) {
	s.t.Helper()
	s.t.proc.Sleep(time.Millisecond)
	var wcs [1]verbs.WC
	if n, err := s.cq.Poll(wcs[:]); n != 1 || err != nil {
		s.t.Fatalf("%d completions, %v", n, err)
	}
	return wcs[0]
}
