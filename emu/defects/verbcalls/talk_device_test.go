package verbcalls

import (
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// deviceTalks are about what a device says of itself, and its events.
var deviceTalks = map[string]defectTalk{
	"LimitsForgotten": {
		talk: func(c *talk) {
			a := must.Get(c.dev.d.QueryDevice())(c)
			for _, n := range []int{a.MaxPD, a.MaxMR, a.MaxMW, a.MaxCQ, a.MaxQP, a.MaxAH, a.MaxSRQ, a.MaxSRQWR, a.MaxSRQSGE, a.MaxCQE} {
				c.note("%v", n > 0)
			}
		},
		sound:     "true; true; true; true; true; true; true; true; true; true",
		defective: "false; false; false; false; false; false; false; false; false; true",
	},
	"LimitsOverstated": {
		talk: func(c *talk) {
			claims, err := c.dev.d.QueryDevice()
			must.Do(c, err)
			truth, err := c.peer.d.QueryDevice()
			must.Do(c, err)
			c.note("%d %d %d", claims.MaxAH/truth.MaxAH, claims.MaxMW/truth.MaxMW, claims.MaxQP/truth.MaxQP)
		},
		sound:     "1 1 1",
		defective: "2 2 2",
	},
	"PortUnchecked": {
		talk: func(c *talk) {
			_, err := c.dev.d.QueryPort(0)
			c.tried(err)
			_, err = c.dev.d.QueryGID(2, 0)
			c.tried(err)
			_, err = c.dev.d.QueryPKey(2, 0)
			c.tried(err)
		},
		sound:     "refused; refused; refused",
		defective: "taken; taken; taken",
	},
	"PortMTUsSwapped": {
		talk: func(c *talk) {
			a := must.Get(c.dev.d.QueryPort(1))(c)
			c.note("%v of %v", a.ActiveMTU, a.MaxMTU)
		},
		sound:     "4096 of 4096",
		defective: "4096 of 256",
	},
	"TablesEndless": {
		talk: func(c *talk) {
			_, err := c.dev.d.QueryGID(1, 99)
			c.tried(err)
			_, err = c.dev.d.QueryPKey(1, -1)
			c.tried(err)
			_, err = c.dev.d.QueryPKey(2, 0)
			c.tried(err)
		},
		sound:     "refused; refused; refused",
		defective: "taken; taken; refused",
	},
	"GIDsWrong": {
		talk:      func(c *talk) { c.note("%v", must.Get(c.dev.d.QueryGID(1, 0))(c).GID) },
		sound:     "fd00::1",
		defective: "fd00::fe",
	},
	"ClaimsAndRefuses": {
		talk: func(c *talk) {
			_, err := c.dev.pd.AllocMW(verbs.MWType1)
			c.tried(err)
			_, err = c.dev.d.CreateSRQ(verbs.SRQInit{PD: c.dev.pd, MaxWR: 1, MaxSGE: 1})
			c.tried(err)
			_, err = c.dev.d.OpenXRCD()
			c.tried(err)
			_, err = c.dev.pd.CreateAH(verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(c.peer.addr)}})
			c.tried(err)
			c.tried(c.dev.cq.Resize(128))
			_, err = c.dev.d.CM()
			c.tried(err)
		},
		sound:     "taken; taken; taken; taken; taken; taken",
		defective: "refused; refused; refused; refused; refused; refused",
	},
	"KindsUnchecked": {
		talk: func(c *talk) {
			_, err := c.dev.pd.AllocMW(3)
			c.tried(err)
			_, err = c.dev.d.CreateSRQ(verbs.SRQInit{Type: 7, PD: c.dev.pd, MaxWR: 1, MaxSGE: 1})
			c.tried(err)
			_, err = c.dev.d.CreateQP(verbs.QPInit{Type: 77, PD: c.dev.pd, SendCQ: c.dev.cq, RecvCQ: c.dev.cq})
			c.tried(err)
		},
		sound:     "refused; refused; refused",
		defective: "taken; taken; taken",
	},
	"CountersShuffled": {
		talk: func(c *talk) {
			first, second := c.dev.d.Counters(), c.dev.d.Counters()
			c.note("%v", first[0].Name == second[0].Name)
			c.note("%v", first[1].Name == second[0].Name && first[0].Name == second[len(second)-1].Name)
		},
		sound:     "true; false",
		defective: "false; true",
	},
	"CounterStuck=NAME": {
		talk: func(c *talk) {
			c.connect()
			c.dev.post(c.dev.wr(1, verbs.OpRDMAWrite))
			c.dev.done()
			for _, n := range c.dev.d.Counters() {
				if n.Name == "sent_pkts" || n.Name == "rcvd_pkts" {
					c.note("%s %v", n.Name, n.Value > 0)
				}
			}
		},
		sound:     "1 SUCCESS 0B; sent_pkts true; rcvd_pkts true",
		defective: "1 SUCCESS 0B; sent_pkts false; rcvd_pkts true",
	},
	"CountersReset": {
		talk: func(c *talk) {
			c.connect()
			c.dev.post(c.dev.wr(1, verbs.OpRDMAWrite))
			c.dev.done()
			for range 2 {
				sum := uint64(0)
				for _, n := range c.dev.d.Counters() {
					sum += n.Value
				}
				c.note("%v", sum > 0)
			}
		},
		sound:     "1 SUCCESS 0B; true; true",
		defective: "1 SUCCESS 0B; true; false",
	},
	"AsyncEventsLost": {
		talk:      func(c *talk) { c.note("%v", c.accessEvent() == nil) },
		sound:     "true",
		defective: "false",
	},
	"AsyncNamesNothing": {
		talk: func(c *talk) {
			c.connect()
			bad := c.peer.wr(2, verbs.OpRDMAWrite)
			bad.Remote.RKey++
			c.peer.post(bad)
			c.note("%v", must.Get(c.dev.d.WaitAsync(verbs.Forever))(c).QP == c.dev.qp)
		},
		sound:     "true",
		defective: "false",
	},
}

// accessEvent provokes an asynchronous event and waits for it for a while.
func (c *talk) accessEvent() error {
	c.Helper()
	c.connect()
	bad := c.peer.wr(2, verbs.OpRDMAWrite)
	bad.Remote.RKey++
	c.peer.post(bad)
	before := c.proc.Now()
	_, err := c.dev.d.WaitAsync(time.Millisecond)
	if waited := c.proc.Now() - before; err != nil && waited != time.Millisecond {
		c.Errorf("waited for %v", waited)
	}
	return err
}
