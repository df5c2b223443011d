package engine

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	ddp "github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

func mute(*wire.Packet) bool { return true }

// meet has x and y have flows to each other.
func (c *duo) meet() {
	for _, p := range [][2]*end{{c.x, c.y}, {c.y, c.x}} {
		p[0].post(p[1], verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: p[0].sge(0, 1), Remote: remote(p[1], 1000)})
		c.run(time.Millisecond)
	}
	c.x.done, c.y.done, c.said = nil, nil, nil
}

// flowDefects are about RD.
var flowDefects = map[string]defectCase{
	"ErrorFailsAll": {
		reliable: true,
		talk: func(c *duo) string {
			// y does not acknowledge what it finds wrong before it says so.
			c.meet()
			c.mute = func(k *wire.Packet) bool { return !k.Flags.Has(wire.FlagData) }
			c.x.post(c.y, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, SGL: c.x.sge(0, 4), Remote: verbs.Remote{RKey: 99}})
			c.x.send(c.y, 2, 4)
			return c.rest(c.x, time.Millisecond)
		},
		sound: "1:REM_ACCESS_ERR 2:WR_FLUSH_ERR", defective: "1:WR_FLUSH_ERR 2:WR_FLUSH_ERR",
	},
	"ErrorQPGoesOn": {
		reliable: true,
		talk: func(c *duo) string {
			c.meet()
			c.x.recv(1, 0, 100)
			c.y.recv(1, 0, 100)
			if err := c.x.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState); err != nil {
				return err.Error()
			}
			c.y.send(c.x, 2, 4)
			c.x.send(c.y, 3, 4)
			return fmt.Sprint(c.rest(c.x, time.Millisecond), "; ", c.rest(c.y, time.Second), "; ", c.count(wire.KindRefusal) > 0)
		},
		sound: "1:WR_FLUSH_ERR 3:WR_FLUSH_ERR; 2:RETRY_EXC_ERR; true", defective: "3:0B; 1:44B 2:0B; false",
	},
	"RDCompletesAtOnce": {
		reliable: true,
		talk: func(c *duo) string {
			c.meet()
			c.mute = mute
			c.x.send(c.y, 1, 4)
			c.x.post(c.y, verbs.SendWR{WRID: 2, Opcode: verbs.OpRDMARead, SGL: c.x.sge(0, 4), Remote: remote(c.y, 0)})
			before := c.rest(c.x, time.Millisecond)
			return before + "; " + c.rest(c.x, time.Minute)
		},
		sound: "; 1:RETRY_EXC_ERR 2:WR_FLUSH_ERR", defective: "1:0B 2:4B; ",
	},
	"PeersWait": {
		reliable: true,
		talk: func(c *duo) string {
			other := c.host().own(true)
			other.recv(9, 0, 100)
			c.mute = mute
			c.x.send(c.y, 1, 4)
			c.x.send(other, 2, 4)
			return c.rest(c.x, time.Second) + "; " + c.rest(c.x, time.Minute)
		},
		sound: "2:0B; 1:RETRY_EXC_ERR", defective: "; 1:RETRY_EXC_ERR 2:0B",
	},
	"BusyAcknowledges": {
		reliable: true,
		talk: func(c *duo) string {
			c.meet()
			c.y.send(c.x, 1, 4)
			first := c.rest(c.y, time.Millisecond)
			c.x.recv(7, 0, 100)
			c.y.send(c.x, 2, 8)
			return first + "; " + c.rest(c.y, time.Second) + "; " + c.rest(c.x, 0)
		},
		sound: "; 1:0B; 7:44B", defective: "1:0B; 2:0B; 7:48B",
	},
	"SourcesMixed on RD": {
		reliable: true,
		talk: func(c *duo) string {
			other := c.host().own(true)
			c.x.recv(1, 0, 8000)
			c.x.recv(2, 0, 8000)
			c.mute = func(k *wire.Packet) bool { return k.Flags.Has(wire.FlagData) && k.Data.Seq > 0 } // only the first arrives
			c.y.send(c.x, 1, 2000)
			c.run(time.Millisecond)
			other.send(c.x, 1, 4)
			return c.rest(c.x, time.Millisecond)
		},
		sound: "2:44B", defective: "1:1450B",
	},
	"ReceiveTakenWrong on RD": {
		reliable: true,
		talk: func(c *duo) string {
			other := c.host().own(true)
			c.x.recv(1, 0, 8000)
			c.mute = func(k *wire.Packet) bool { return k.Flags.Has(wire.FlagData) && k.Data.Seq > 0 }
			c.y.send(c.x, 1, 2000)
			c.run(time.Millisecond)
			other.send(c.x, 1, 4)
			first := c.rest(c.x, time.Millisecond) // y has the receive, or other finds it
			c.mute = nil
			c.x.recv(2, 0, 8000)
			return first + "; " + c.rest(c.x, time.Second)
		},
		sound: "; 2:44B 1:2040B", defective: "1:44B; 2:2040B",
	},
	"RecordIsWrite on RD": {
		reliable: true,
		talk: func(c *duo) string {
			c.y.recv(1, 0, 100)
			c.x.post(c.y, verbs.SendWR{WRID: 2, Opcode: verbs.OpRDMAWriteImm, SGL: c.x.sge(0, 4), Remote: remote(c.y, 0)})
			return c.rest(c.x, time.Millisecond) + "; " + c.rest(c.y, 0)
		},
		sound: "2:0B; 1:44B", defective: "2:0B; ",
	},
	"ErrorsSilent on RD": {
		reliable: true,
		talk: func(c *duo) string {
			c.meet()
			c.y.post(c.x, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMAWrite, SGL: c.y.sge(0, 4), Remote: verbs.Remote{RKey: 99}})
			c.run(time.Millisecond)
			c.x.recv(7, 0, 100)
			c.y.send(c.x, 2, 4)
			c.run(time.Second)
			return fmt.Sprint(c.x.State(), c.events(), " ", c.rest(c.x, 0))
		},
		sound: "IBV_QPS_ERR 1 7:WR_FLUSH_ERR", defective: "IBV_QPS_RTS 0 7:44B",
	},
	"BusyHoldsWrites": {
		reliable: true,
		talk: func(c *duo) string {
			c.y.post(c.x, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMAWrite, SGL: c.y.sge(0, 4), Remote: remote(c.x, 0)})
			first := c.rest(c.y, time.Second)
			c.x.recv(7, 0, 100)
			return first + "; " + c.rest(c.y, time.Second)
		},
		sound: "1:0B; ", defective: "; 1:0B",
	},
	"RDWithoutExtensions": {
		reliable: true,
		talk: func(c *duo) string {
			c.x.recv(7, 0, 100)
			c.y.post(c.x, verbs.SendWR{WRID: 1, Opcode: verbs.OpSendImm, Imm: 5})
			done := c.rest(c.x, time.Second)
			r, _ := c.y.LastError()
			return fmt.Sprint(done, " ", r.Error == ddp.TermOpOpcode)
		},
		sound: "7:40B false", defective: "7:WR_FLUSH_ERR true",
	},
	"HalfSendLosesReceive": {
		reliable: true,
		talk: func(c *duo) string {
			c.meet()
			c.x.recv(7, 0, 8000)
			c.mute = func(k *wire.Packet) bool { return k.Flags.Has(wire.FlagData) && k.Data.Seq > 1 }
			c.y.send(c.x, 1, 6000)
			return c.rest(c.x, time.Minute)
		},
		sound: "7:WR_FLUSH_ERR", defective: "",
	},
	"ReadsUnlimited": {
		reliable: true,
		talk: func(c *duo) string {
			c.meet()
			c.mute = mute
			for range 30 {
				c.x.post(c.y, verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, SGL: c.x.sge(0, 4), Remote: remote(c.y, 0)})
			}
			c.run(500 * time.Microsecond)
			c.mute = nil
			c.run(100 * time.Microsecond)
			return fmt.Sprint(c.count(wire.KindRD))
		},
		sound: "16", defective: "17",
	},
	"FailureStopsQP": {
		reliable: true,
		talk: func(c *duo) string {
			c.mute = mute
			c.x.send(c.y, 1, 4)
			c.run(time.Minute)
			return fmt.Sprint(c.x.State())
		},
		sound: "IBV_QPS_RTS", defective: "IBV_QPS_ERR",
	},
}
