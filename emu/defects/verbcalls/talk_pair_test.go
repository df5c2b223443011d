package verbcalls

import (
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// pairTalks are about queue pairs and their states.
var pairTalks = map[string]defectTalk{
	"CapsShort": {
		talk: func(c *talk) {
			p := c.dev.newQP(func(in *verbs.QPInit) {
				in.Caps = verbs.QPCaps{MaxSendWR: 7, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 1, MaxInline: 64}
			})
			c.note("%+v", must.Get(p.Query())(c).Caps)
			s := must.Get(c.dev.d.CreateSRQ(verbs.SRQInit{PD: c.dev.pd, MaxWR: 5, MaxSGE: 2}))(c)
			c.note("%+v", must.Get(s.Query())(c))
		},
		sound:     "{MaxSendWR:7 MaxRecvWR:8 MaxSendSGE:2 MaxRecvSGE:1 MaxInline:64}; {MaxWR:5 MaxSGE:2 Limit:0}",
		defective: "{MaxSendWR:4 MaxRecvWR:4 MaxSendSGE:1 MaxRecvSGE:1 MaxInline:32}; {MaxWR:3 MaxSGE:1 Limit:0}",
	},
	"QPNsRepeat": {
		talk: func(c *talk) {
			other := c.dev.newQP(nil)
			c.note("%v", other.QPN() == c.dev.qp.QPN())
		},
		sound:     "false",
		defective: "true",
	},
	"ModifyLies": {
		talk: func(c *talk) {
			c.tried(c.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState))
			c.dev.state()
		},
		sound:     "refused; RESET",
		defective: "taken; RESET",
	},
	"RefusalKills": {
		talk: func(c *talk) {
			c.tried(c.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState))
			c.dev.state()
			c.dev.datagrams()
			c.tried(c.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState|verbs.QPAttrPort))
			c.dev.state()
		},
		sound:     "refused; RESET; refused; RTS",
		defective: "refused; ERR; refused; ERR",
	},
	"OptionalAttrsRefused": {
		talk: func(c *talk) {
			a := verbs.QPAttr{State: verbs.QPStateInit, Port: 1, Access: allAccess}
			must.Do(c, c.dev.qp.Modify(a, toInit))
			c.tried(c.dev.qp.Modify(a, verbs.QPAttrAccessFlags))
			c.dev.qp = c.dev.newQP(nil)
			c.connect()
			c.tried(c.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS, MinRNRTimer: 1}, verbs.QPAttrState|verbs.QPAttrMinRNRTimer))
		},
		sound:     "taken; taken",
		defective: "refused; refused",
	},
	"QueryForgets": {
		talk: func(c *talk) {
			c.connect()
			a := must.Get(c.dev.qp.Query())(c)
			c.note("%v %d %d", a.State, a.Caps.MaxSendWR, a.Timeout)
		},
		sound:     "IBV_QPS_RTS 16 14",
		defective: "IBV_QPS_RTS 16 0",
	},
	"QueryStale": {
		talk: func(c *talk) {
			c.connect()
			bad := c.dev.wr(1, verbs.OpRDMARead)
			bad.Remote.RKey++
			c.dev.post(bad)
			c.proc.Sleep(time.Millisecond)
			a, err := c.dev.qp.Query()
			must.Do(c, err)
			c.note("%v, %v, %d", a.State, a.CurState, a.SQPSN)
		},
		sound:     "IBV_QPS_ERR, IBV_QPS_ERR, 8",
		defective: "IBV_QPS_RTS, IBV_QPS_RTS, 7",
	},
	"ResetReadsInit": {
		talk:      func(c *talk) { c.dev.state() },
		sound:     "RESET",
		defective: "INIT",
	},
	"ResetFlushes": {
		talk: func(c *talk) {
			c.connect()
			c.dev.recv(1, 2)
			must.Do(c, c.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState))
			c.dev.state()
			c.dev.done()
		},
		sound:     "RESET",
		defective: "RESET; 1 WR_FLUSH_ERR 0B; 2 WR_FLUSH_ERR 0B",
	},
	"ErrorIsFinal": {
		talk: func(c *talk) {
			reset := verbs.QPAttr{State: verbs.QPStateReset}
			c.connect()
			c.tried(c.dev.qp.Modify(reset, verbs.QPAttrState))
			c.peer.qp = c.peer.newQP(nil)
			c.connect()
			must.Do(c, c.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
			c.tried(c.dev.qp.Modify(reset, verbs.QPAttrState))
		},
		sound:     "taken; taken",
		defective: "taken; refused",
	},
	"BusyQPStays": {
		talk: func(c *talk) {
			c.connect()
			c.dev.recv(1)
			c.tried(c.dev.newQP(nil).Close())
			c.tried(c.dev.qp.Close())
			c.dev.qp = c.dev.newQP(nil)
			c.peer.qp = c.peer.newQP(nil)
			c.connect()
			c.dev.recv(2)
			c.peer.post(c.peer.wr(3, verbs.OpSend))
			c.dev.done()
			c.tried(c.dev.qp.Close())
		},
		sound:     "taken; taken; 2 SUCCESS 8B; taken",
		defective: "taken; refused; 2 SUCCESS 8B; taken",
	},
}

// state notes the state of the side's queue pair.
func (s *side) state() {
	s.t.Helper()
	s.t.note("%s", strings.TrimPrefix(must.Get(s.qp.Query())(s.t).State.String(), "IBV_QPS_"))
}
