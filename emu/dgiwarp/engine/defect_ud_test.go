package engine

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	ddp "github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

var testGroup = netip.MustParseAddr("239.0.0.1")

func toGroup(d *link.Datagram, k *wire.Packet) {
	d.Dst, k.DstQP = netip.AddrPortFrom(testGroup, d.Dst.Port()), wire.MulticastQP
}

func toGroupNumber(_ *link.Datagram, k *wire.Packet) { k.DstQP = wire.MulticastQP }

// addressDefects are about where packets come from and go to.
var addressDefects = map[string]defectCase{
	"PathMTUIgnored": {
		talk: func(c *duo) string {
			c.x.send(c.y, 1, 8000)
			n := c.x.h.nic.Output(c.now, c.x.h.out)
			return fmt.Sprint(n, c.x.h.out[0].Variants == link.MayFragment)
		},
		sound: "6 false", defective: "1 true",
	},
	"SourceLost": {
		talk: func(c *duo) string {
			c.x.recv(1, 0, 100)
			c.y.send(c.x, 1, 4)
			c.run(time.Millisecond)
			wc := c.x.ok(1)[0]
			return fmt.Sprint(wc.SrcQP, SourcePort(c.x.bytes(recvAt, verbs.GRHLen)))
		},
		sound: "17 65041", defective: "0 0",
	},
	"PortEphemeral": {
		talk: func(c *duo) string {
			c.x.send(c.y, 1, 4)
			c.run(time.Millisecond)
			return fmt.Sprint(c.from[0].Port())
		},
		sound: "65041", defective: "50000",
	},
	"GroupsMixed": {
		talk: func(c *duo) string {
			other := c.x.h.own(false)
			for i, e := range []*end{c.x, other} {
				if err := e.h.nic.Attach(e.QP, testGroup); err != nil {
					return err.Error()
				}
				e.recv(uint64(i), 0, 100)
				e.recv(uint64(i), 0, 100)
			}
			c.udp(sendSegment(1, 0, 4, true), toGroup)
			c.udp(sendSegment(2, 0, 8, true), toGroupNumber)
			return c.rest(c.x, time.Millisecond) + "; " + c.rest(other, 0)
		},
		sound: "0:44B; 1:44B", defective: "0:44B 0:48B; ",
	},
	"StrangersHeard": {
		talk: func(c *duo) string {
			for i, src := range []string{"239.0.0.1:65041", "0.0.0.0:65041", "10.0.0.2:0"} {
				c.x.recv(uint64(i), 0, 100)
				c.udp(sendSegment(1, 0, 4, true), func(d *link.Datagram, _ *wire.Packet) { d.Src = netip.MustParseAddrPort(src) })
			}
			return c.rest(c.x, time.Millisecond)
		},
		sound: "", defective: "0:44B 1:44B 2:44B",
	},
	"GroupAnswered": {
		talk: func(c *duo) string {
			if err := c.x.h.nic.Attach(c.x.QP, testGroup); err != nil {
				return err.Error()
			}
			c.udp(sendSegment(1, MaxUDSend, 4, true), toGroup)
			c.udp(nil, toGroup, func(_ *link.Datagram, k *wire.Packet) {
				k.Kind, k.Flags = wire.KindRD, wire.FlagData|wire.FlagStart
			})
			c.run(time.Millisecond)
			return fmt.Sprint(c.count(wire.KindUD), c.count(wire.KindRefusal))
		},
		sound: "0 0", defective: "1 1",
	},
	"FlowLabelIgnored": {
		talk: func(c *duo) string {
			n := c.x.h.nic
			a, err := n.CreateAH(c.x.h.pd, verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(c.y.h.addr)}}, 1234)
			if err != nil {
				return err.Error()
			}
			return fmt.Sprint(a.path.dst.Port())
		},
		sound: "1234", defective: "65041",
	},
}

// pieceDefects are about messages on UD, and how they are put together.
var pieceDefects = map[string]defectCase{
	"LongSendsLeave": {
		talk: func(c *duo) string {
			return fmt.Sprint(c.x.try(c.y, verbs.SendWR{Opcode: verbs.OpSend, SGL: c.x.sge(0, MaxUDSend+1)}) == nil)
		},
		sound: "false", defective: "true",
	},
	"UDWaitsForPeer": {
		talk: func(c *duo) string {
			c.x.send(c.y, 1, 4)
			before := c.rest(c.x, time.Millisecond)
			c.udp(sendSegment(1, 0, 4, true))
			return before + "; " + c.rest(c.x, time.Millisecond)
		},
		sound: "1:0B; ", defective: "; 1:0B",
	},
	"UDReads": {
		talk: func(c *duo) string {
			// Both can: a read of the other's memory comes back.
			c.y = c.host(func(cfg *Config) { cfg.Defects = c.x.h.nic.cfg.Defects }).own(false)
			copy(c.y.write(0, 3000, 5), "what is read")
			err := c.x.try(c.y, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, SGL: c.x.sge(0, 3000), Remote: remote(c.y, 0)})
			if err != nil {
				return "refused"
			}
			c.x.post(c.y, verbs.SendWR{WRID: 2, Opcode: verbs.OpAtomicFetchAdd, SGL: c.x.sge(4096, 8), Remote: remote(c.y, 0), Atomic: verbs.Atomic{CompareAdd: 1}})
			done := c.rest(c.x, time.Millisecond)
			return done + " " + string(c.x.bytes(0, 12)) + "; " + string(c.x.bytes(4096, 4)) + "; " + string(c.y.bytes(0, 4))
		},
		sound: "refused", defective: "1:3000B 2:8B what is read; what; xhat",
	},
	"UDIgnoresSRQ": {
		talk: func(c *duo) string {
			h := c.x.h
			srq, err := h.nic.CreateSRQ(nic.SRQConfig{PD: h.pd, MaxWR: 4, MaxSGE: 1})
			if err != nil {
				return err.Error()
			}
			e := h.own(false, func(q *QPConfig) { q.SRQ = srq })
			if err := srq.PostRecv(&verbs.RecvWR{WRID: 7, SGL: e.sge(0, 100)}); err != nil {
				return err.Error()
			}
			c.y.send(e, 1, 4)
			return c.rest(e, time.Millisecond)
		},
		sound: "7:44B", defective: "",
	},
	"SourcesMixed": {
		talk: func(c *duo) string {
			c.x.recv(1, 0, 100)
			c.udp(sendSegment(1, 0, 4, false))
			c.udp(sendSegment(1, 4, 4, true), func(_ *link.Datagram, k *wire.Packet) { k.SrcQP = 99 })
			return c.rest(c.x, time.Millisecond)
		},
		sound: "", defective: "1:48B",
	},
	"ReceiveTakenWrong": {
		talk: func(c *duo) string {
			c.x.recv(1, 0, 100)
			c.udp(sendSegment(1, 0, 4, false))
			c.udp(sendSegment(2, 0, 8, true))
			first := c.rest(c.x, time.Second) // until the half is dropped
			c.udp(sendSegment(3, 0, 4, false))
			c.udp(sendSegment(3, 4, 4, true))
			return first + "; " + c.rest(c.x, time.Millisecond)
		},
		sound: "1:48B; ", defective: "; 1:48B",
	},
	"PiecesUnbounded": {
		talk: func(c *duo) string {
			c.x.recv(1, 0, 100)
			for msn := range 100 {
				c.udp(sendSegment(ddp.MSN(msn), 0, 4, false))
			}
			c.run(time.Second)
			c.udp(sendSegment(0, 4, 4, true))
			return c.rest(c.x, time.Millisecond)
		},
		sound: "", defective: "1:48B",
	},
	"PiecesUnchecked": {
		talk: func(c *duo) string {
			c.x.recv(1, 0, 100)
			c.x.recv(2, 0, 100)
			c.udp(sendSegment(1, 4, 4, true))
			c.udp(sendSegment(1, 4, 4, true))
			c.udp(c.recordSegment(2, 0, 8, 4, false))
			c.udp(c.recordSegment(2, 0, 9, 4, false))
			return c.rest(c.x, time.Millisecond)
		},
		sound: "", defective: "1:48B 2:68B",
	},
	"NoReceiveIsError": {
		talk: func(c *duo) string {
			c.udp(sendSegment(1, 0, 4, true))
			c.run(time.Millisecond)
			r, _ := c.y.LastError()
			return fmt.Sprint(c.x.State(), c.events(), r.Error == ddp.TermUntaggedNoBuffer)
		},
		sound: "IBV_QPS_RTS 0 false", defective: "IBV_QPS_ERR 1 true",
	},
}

// taggedDefects are about Writes and Write-Records.
var taggedDefects = map[string]defectCase{
	"WriteTakesReceive": {
		talk: func(c *duo) string {
			c.x.recv(1, 0, 100)
			c.udp(c.taggedSegment(ddp.OpWrite, 0, make([]byte, 4), true))
			return c.rest(c.x, time.Millisecond)
		},
		sound: "", defective: "1:40B",
	},
	"FirstSegmentChecked": {
		talk: func(c *duo) string {
			c.udp(c.taggedSegment(ddp.OpWrite, 0, []byte("good"), false))
			c.udp(c.taggedSegment(ddp.OpWrite, 1<<20-2, []byte("over"), true))
			return fmt.Sprintf("%v %q", c.x.State(), c.x.h.mem[1<<20-2:])
		},
		sound: `IBV_QPS_ERR "\x00\x00"`, defective: `IBV_QPS_RTS "ov"`,
	},
	"RecordIsWrite": {
		talk: func(c *duo) string {
			c.y.recv(1, 0, 100)
			c.x.post(c.y, verbs.SendWR{WRID: 2, Opcode: verbs.OpRDMAWriteImm, SGL: c.x.sge(0, 4), Remote: remote(c.y, 0)})
			return c.rest(c.x, time.Millisecond) + "; " + c.rest(c.y, 0)
		},
		sound: "2:0B; 1:68B", defective: "2:0B; ",
	},
	"RecordWaitsForLast": {
		talk: func(c *duo) string {
			c.x.recv(1, 0, 100)
			c.udp(c.recordSegment(1, 4, 8, 4, true))
			c.udp(c.recordSegment(1, 0, 8, 4, false))
			return fmt.Sprint(c.rest(c.x, time.Second), c.ranges())
		},
		sound: "1:68B[{0 8}]", defective: "1:68B[{4 4}]",
	},
	"RecordClaimsAll": {
		talk: func(c *duo) string {
			c.x.recv(1, 0, 100)
			c.udp(c.recordSegment(1, 4, 8, 4, true))
			return fmt.Sprint(c.rest(c.x, time.Second), c.ranges())
		},
		sound: "1:68B[{4 4}]", defective: "1:68B[{0 8}]",
	},
	"RangesUnjoined": {
		talk: func(c *duo) string {
			c.x.recv(1, 0, 100)
			c.udp(c.recordSegment(1, 4, 8, 4, true))
			c.udp(c.recordSegment(1, 0, 8, 4, false))
			return fmt.Sprint(c.rest(c.x, time.Second), c.ranges())
		},
		sound: "1:68B[{0 8}]", defective: "1:76B[{0 4} {4 4}]",
	},
}

// errorDefects are about what a peer does wrong.
var errorDefects = map[string]defectCase{
	"ErrorsSilent": {
		talk: func(c *duo) string {
			c.udp(c.taggedSegment(ddp.OpReadResponse, 0, nil, true))
			c.run(time.Millisecond)
			return fmt.Sprint(c.x.State(), c.events(), c.count(wire.KindUD))
		},
		sound: "IBV_QPS_ERR 1 1", defective: "IBV_QPS_RTS 0 0",
	},
	"IsolationIgnored": {
		talk: func(c *duo) string {
			e := c.x.h.own(false, func(q *QPConfig) { q.Isolate = true })
			c.udp(c.taggedSegment(ddp.OpReadResponse, 0, nil, true), func(_ *link.Datagram, k *wire.Packet) { k.DstQP = e.num })
			return fmt.Sprint(e.State())
		},
		sound: "IBV_QPS_RTS", defective: "IBV_QPS_ERR",
	},
	"ErrorMessageStops": {
		talk: func(c *duo) string {
			t := ddp.Terminate{Error: ddp.TermTaggedSTag}
			h := ddp.Header{Control: ddp.NewControl(ddp.OpTerminate, true), Untagged: ddp.Untagged{QN: ddp.QueueTerminate, MSN: 1}}
			c.udp(t.Append(h.Append(nil)))
			return fmt.Sprint(c.x.State(), c.events())
		},
		sound: "IBV_QPS_RTS 1", defective: "IBV_QPS_ERR 1",
	},
}
