package verbcalls

import (
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// requestTalks are about what is posted.
var requestTalks = map[string]defectTalk{
	"FenceIgnored": {
		talk:      func(c *talk) { c.note("same: %v", c.overtaken(verbs.SendFence)) },
		sound:     "same: false",
		defective: "same: true",
	},
	"AlwaysFenced": {
		talk:      func(c *talk) { c.note("same: %v", c.overtaken(0)) },
		sound:     "same: true",
		defective: "same: false",
	},
	"SignalAllIgnored": {
		talk: func(c *talk) {
			c.dev.qp = c.dev.newQP(func(in *verbs.QPInit) { in.SignalAll = true })
			c.connect()
			quiet := c.dev.wr(1, verbs.OpRDMAWrite)
			quiet.Flags = 0
			c.dev.post(quiet, c.dev.wr(2, verbs.OpRDMAWrite))
			c.dev.done()
		},
		sound:     "1 SUCCESS 0B; 2 SUCCESS 0B",
		defective: "2 SUCCESS 0B",
	},
	"SignalsAll": {
		talk: func(c *talk) {
			c.connect()
			quiet := c.dev.wr(1, verbs.OpRDMAWrite)
			quiet.Flags = 0
			c.dev.post(quiet)
			c.dev.done()
		},
		sound:     "",
		defective: "1 SUCCESS 0B",
	},
	"BadPostsSwallowed": {
		talk: func(c *talk) {
			c.connect()
			bad, good := c.dev.wr(1, verbs.OpSend), c.dev.wr(2, verbs.OpRDMAWrite)
			bad.Opcode = 99
			c.dev.send(bad, good)
			n, err := c.dev.qp.PostRecv([]verbs.RecvWR{{SGL: make([]verbs.SGE, 2)}, {}, {SGL: make([]verbs.SGE, 2)}})
			c.note("%d", n)
			c.tried(err)
			c.dev.done()
		},
		sound:     "0 invalid; 0; refused",
		defective: "3; taken; 2 SUCCESS 0B",
	},
	"PostCountWrong": {
		talk: func(c *talk) {
			c.connect()
			bad := c.dev.wr(2, verbs.OpSend)
			bad.Opcode = 99
			c.dev.send(c.dev.wr(1, verbs.OpRDMAWrite), bad)
			c.dev.done()
		},
		sound:     "1 invalid; 1 SUCCESS 0B",
		defective: "0 invalid; 1 SUCCESS 0B",
	},
	"FullIsInvalid": {
		talk: func(c *talk) {
			c.connect()
			c.dev.send(make([]verbs.SendWR, 17)...)
		},
		sound:     "16 full",
		defective: "16 invalid",
	},
	"RecvNeedsReady": {
		talk: func(c *talk) {
			must.Do(c, c.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1}, toInit))
			_, err := c.dev.qp.PostRecv(make([]verbs.RecvWR, 1))
			c.tried(err)
			c.connect()
			_, err = c.dev.qp.PostRecv(make([]verbs.RecvWR, 1))
			c.tried(err)
		},
		sound:     "taken; taken",
		defective: "refused; taken",
	},
	"SGECut": {
		talk: func(c *talk) {
			c.connect()
			long := c.dev.wr(1, verbs.OpRDMAWrite)
			long.SGL = append(long.SGL, long.SGL...)
			c.dev.send(long)
			_, err := c.dev.qp.PostRecv([]verbs.RecvWR{{SGL: long.SGL}})
			c.tried(err)
			s := must.Get(c.dev.d.CreateSRQ(verbs.SRQInit{PD: c.dev.pd, MaxWR: 1, MaxSGE: 1}))(c)
			_, err = s.PostRecv([]verbs.RecvWR{{SGL: long.SGL}})
			c.tried(err)
		},
		sound:     "0 invalid; refused; refused",
		defective: "taken; taken",
	},
	"SGEClamped": {
		talk: func(c *talk) {
			c.connect()
			copy(c.dev.buf, "head")
			m := must.Get(c.dev.pd.RegMR(verbs.MRInit{Buf: c.dev.buf[:8]}))(c)
			write := c.dev.wr(1, verbs.OpRDMAWrite)
			write.SGL = []verbs.SGE{{Addr: m.Addr() - 1, Length: 10, LKey: m.LKey()}}
			c.dev.send(write)
			c.dev.done()
			c.note("%q", c.peer.buf[:8])
		},
		sound:     `1 LOC_PROT_ERR 0B; "\x00\x00\x00\x00\x00\x00\x00\x00"`,
		defective: `1 SUCCESS 0B; "head\x00\x00\x00\x00"`,
	},
	"SGEsReversed": {
		talk: func(c *talk) {
			c.dev.qp = c.dev.newQP(func(in *verbs.QPInit) { in.Caps.MaxSendSGE = 2 })
			c.connect()
			copy(c.dev.buf, "headtail")
			write := c.dev.wr(1, verbs.OpRDMAWrite)
			write.SGL = []verbs.SGE{verbs.SGEOf(c.dev.mr, 0, 4), verbs.SGEOf(c.dev.mr, 4, 4)}
			c.dev.post(write)
			c.dev.done()
			c.note("%s", c.peer.buf[:8])
		},
		sound:     "1 SUCCESS 0B; headtail",
		defective: "1 SUCCESS 0B; tailhead",
	},
	"InlineLate": {
		talk: func(c *talk) {
			c.dev.qp = c.dev.newQP(func(in *verbs.QPInit) { in.Caps.MaxInline = 8 })
			c.connect()
			write, next := c.dev.wr(1, verbs.OpRDMAWrite), c.dev.wr(2, verbs.OpRDMARead)
			write.Flags |= verbs.SendInline
			write.Inline, write.SGL = []byte("as it is"), nil
			c.dev.post(write, next)
			copy(write.Inline, "afterwards")
			c.dev.done()
			c.dev.done()
			c.note("%s", c.peer.buf[:8])
		},
		sound:     "1 SUCCESS 0B; 2 SUCCESS 8B; as it is",
		defective: "1 SUCCESS 0B; 2 SUCCESS 8B; afterwar",
	},
	"InlineCut": {
		talk: func(c *talk) {
			c.dev.qp = c.dev.newQP(func(in *verbs.QPInit) { in.Caps.MaxInline = 4 })
			c.connect()
			write := c.dev.wr(1, verbs.OpRDMAWrite)
			write.Flags |= verbs.SendInline
			write.Inline, write.SGL = []byte("too much"), nil
			c.dev.send(write)
			c.dev.done()
			c.note("%q", c.peer.buf[:8])
		},
		sound:     `0 invalid; "\x00\x00\x00\x00\x00\x00\x00\x00"`,
		defective: `1 SUCCESS 0B; "too \x00\x00\x00\x00"`,
	},
	"EmptySendRefused": {
		talk: func(c *talk) {
			c.connect()
			c.peer.recv(1)
			empty := c.dev.wr(2, verbs.OpSend)
			empty.SGL = nil
			c.dev.send(empty)
			c.dev.done()
		},
		sound:     "2 SUCCESS 0B",
		defective: "0 invalid",
	},
	"OpsDowngraded": {
		talk: func(c *talk) {
			c.dev.datagrams()
			c.peer.datagrams()
			c.peer.recv(1)
			read := c.dev.datagram(2, c.dev.pd)
			read.Opcode = verbs.OpRDMARead
			c.dev.send(read)
			c.dev.done()
		},
		sound:     "0 invalid",
		defective: "2 SUCCESS 0B",
	},
	"AtomicOperandsSwapped": {
		talk: func(c *talk) {
			c.connect()
			swap := c.dev.wr(1, verbs.OpAtomicCmpAndSwp)
			swap.Atomic = verbs.Atomic{CompareAdd: 0, Swap: 7}
			c.dev.post(swap)
			c.dev.done()
			c.note("% x", c.peer.buf[:8])
		},
		sound:     "1 SUCCESS 8B; 07 00 00 00 00 00 00 00",
		defective: "1 SUCCESS 8B; 00 00 00 00 00 00 00 00",
	},
	"AtomicAddendCut": {
		talk: func(c *talk) {
			c.connect()
			add := c.dev.wr(1, verbs.OpAtomicFetchAdd)
			add.Atomic.CompareAdd = 1<<40 | 7
			c.dev.post(add)
			c.dev.done()
			c.note("% x", c.peer.buf[:8])
		},
		sound:     "1 SUCCESS 8B; 07 00 00 00 00 01 00 00",
		defective: "1 SUCCESS 8B; 07 00 00 00 00 00 00 00",
	},
	"AtomicSinkCut": {
		talk: func(c *talk) {
			c.connect()
			add := c.dev.wr(1, verbs.OpAtomicFetchAdd)
			add.SGL[0].Length = 16
			c.dev.send(add)
			c.dev.done()
		},
		sound:     "0 invalid",
		defective: "1 SUCCESS 8B",
	},
	"AtomicAligned": {
		talk: func(c *talk) {
			c.connect()
			add := c.dev.wr(1, verbs.OpAtomicFetchAdd)
			add.Remote.Addr += 3
			c.dev.send(add)
			c.dev.done()
		},
		sound:     "1 REM_INV_REQ_ERR 0B",
		defective: "1 SUCCESS 8B",
	},
	"AHsAnyDomain": {
		talk: func(c *talk) {
			c.dev.datagrams()
			c.peer.datagrams()
			c.peer.recv(1, 2)
			other := must.Get(c.dev.d.AllocPD())(c)
			for id := range uint64(2) {
				c.dev.send(c.dev.datagram(id+3, other))
			}
			c.dev.done()
			must.Do(c, c.dev.qp.Close())
			must.Do(c, c.dev.mr.Close())
		},
		sound:     "0 invalid; 0 invalid",
		defective: "3 SUCCESS 0B; 4 SUCCESS 0B",
	},
}

// overtaken reports whether a SEND with the given flags arrives before a READ
// posted ahead of it is answered: whether both leave at the same time.
func (c *talk) overtaken(flags verbs.SendFlags) bool {
	c.Helper()
	c.connect()
	c.peer.recv(1)
	send := c.dev.wr(2, verbs.OpSend)
	send.Flags |= flags
	c.dev.post(c.dev.wr(1, verbs.OpRDMARead), send)
	var wc [1]verbs.WC
	for n := 0; n == 0; {
		c.proc.Sleep(100 * time.Nanosecond)
		n = must.Get(c.peer.cq.Poll(wc[:]))(c)
	}
	return must.Get(c.dev.cq.Poll(wc[:]))(c) == 0 // or the READ has completed first
}
