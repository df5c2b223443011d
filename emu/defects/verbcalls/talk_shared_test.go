package verbcalls

import (
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// sharedTalks are about SRQs, address handles and XRC.
var sharedTalks = map[string]defectTalk{
	"SRQUnchecked": {
		talk: func(c *talk) {
			srq := must.Get(c.dev.d.CreateSRQ(verbs.SRQInit{PD: c.dev.pd, MaxWR: 2, MaxSGE: 1}))(c)
			c.tried(srq.Modify(verbs.SRQAttr{Limit: 3}, verbs.SRQLimit))
			c.dev.qp = c.dev.newQP(func(in *verbs.QPInit) { in.SRQ = srq })
			c.connect()
			_, err := c.dev.qp.PostRecv(make([]verbs.RecvWR, 1))
			c.tried(err)
		},
		sound:     "refused; refused",
		defective: "taken; taken",
	},
	"SRQBypassed": {
		talk: func(c *talk) {
			c.withSRQ()
			c.connect()
			n, err := c.dev.qp.PostRecv([]verbs.RecvWR{{WRID: 1, SGL: []verbs.SGE{verbs.SGEOf(c.dev.mr, 0, 8)}}})
			c.note("%d", n)
			c.tried(err)
			c.peer.post(c.peer.wr(2, verbs.OpSend))
			c.dev.done()
		},
		sound:     "0; refused",
		defective: "1; taken; 1 SUCCESS 8B",
	},
	"SRQModifyLies": {
		talk: func(c *talk) {
			s := c.withSRQ()
			c.tried(s.Modify(verbs.SRQAttr{Limit: 9}, verbs.SRQLimit))
			c.note("%+v", must.Get(s.Query())(c))
		},
		sound:     "refused; {MaxWR:4 MaxSGE:1 Limit:0}",
		defective: "taken; {MaxWR:4 MaxSGE:1 Limit:0}",
	},
	"SRQResizeNoop": {
		talk: func(c *talk) {
			s := c.withSRQ()
			c.tried(s.Modify(verbs.SRQAttr{MaxWR: 8}, verbs.SRQMaxWR))
			c.tried(s.Modify(verbs.SRQAttr{Limit: 1}, verbs.SRQLimit))
			c.note("%+v", must.Get(s.Query())(c))
		},
		sound:     "taken; taken; {MaxWR:8 MaxSGE:1 Limit:1}",
		defective: "taken; taken; {MaxWR:4 MaxSGE:1 Limit:1}",
	},
	"SRQNumberWrong": {
		talk: func(c *talk) {
			s := c.withSRQ()
			c.note("%v", s.Number() == its(s).Number())
		},
		sound:     "true",
		defective: "false",
	},
	"AHAttrForgotten": {
		talk: func(c *talk) {
			a := must.Get(c.dev.pd.CreateAH(verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(c.peer.addr), HopLimit: 9}}))(c).Attr()
			c.note("%v %d %d", a.GRH.DGID, a.GRH.HopLimit, a.Port)
		},
		sound:     "fd00::2 9 1",
		defective: "fd00::2 0 0",
	},
	"AHUnchecked": {
		talk: func(c *talk) {
			_, err := c.dev.pd.CreateAH(verbs.AHAttr{Port: 2, GRH: verbs.GRH{DGID: verbs.GIDFrom(c.peer.addr)}})
			c.tried(err)
			_, err = c.dev.pd.CreateAH(verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(c.peer.addr), SGIDIndex: 200}})
			c.tried(err)
		},
		sound:     "refused; refused",
		defective: "taken; taken",
	},
	"XRCTargetDies": {
		talk: func(c *talk) {
			x := must.Get(c.dev.d.OpenXRCD())(c)
			target := must.Get(c.dev.d.CreateQP(verbs.QPInit{Type: verbs.QPTypeXRCRecv, XRCD: x}))(c)
			other := must.Get(c.dev.d.OpenQP(x, target.QPN()))(c)
			must.Do(c, target.Close())
			_, err := other.Query()
			c.tried(err)
		},
		sound:     "taken",
		defective: "refused",
	},
	"OpenQPAny": {
		talk: func(c *talk) {
			x := must.Get(c.dev.d.OpenXRCD())(c)
			_, err := c.dev.d.OpenQP(x, 0x777)
			c.tried(err)
			_, err = c.dev.d.OpenQP(nil, 0x777)
			c.tried(err)
		},
		sound:     "refused; refused",
		defective: "taken; refused",
	},
}

// withSRQ gives the device a queue pair on an SRQ for four receives.
func (c *talk) withSRQ() verbs.SRQ {
	c.Helper()
	s := must.Get(c.dev.d.CreateSRQ(verbs.SRQInit{PD: c.dev.pd, MaxWR: 4, MaxSGE: 1}))(c)
	c.dev.qp = c.dev.newQP(func(in *verbs.QPInit) { in.SRQ = s })
	return s
}
