package verbcalls

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// lifeTalks are about objects that are closed, missing or waited at.
var lifeTalks = map[string]defectTalk{
	"BusyClosed": {
		talk: func(c *talk) {
			for _, x := range []interface{ Close() error }{c.dev.pd, c.dev.cq, c.dev.qp, c.dev.cq, c.dev.cq} {
				c.tried(x.Close())
			}
		},
		sound:     "refused; refused; taken; taken; refused",
		defective: "taken; taken; taken; taken; refused",
	},
	"ClosedAnswers": {
		talk: func(c *talk) {
			must.Do(c, c.dev.qp.Close())
			n, err := c.dev.qp.PostRecv(make([]verbs.RecvWR, 2))
			c.note("%d", n)
			c.tried(err)
			_, err = c.dev.qp.Query()
			c.tried(err)
			c.tried(c.dev.qp.Close())
			x := must.Get(c.dev.d.OpenXRCD())(c)
			must.Do(c, x.Close())
			_, err = c.dev.d.OpenQP(x, 77)
			c.tried(err)
		},
		sound:     "0; refused; refused; refused; refused",
		defective: "2; taken; taken; refused; taken",
	},
	"ClosesTwice": {
		talk: func(c *talk) {
			must.Do(c, c.dev.qp.Close())
			c.tried(c.dev.qp.Close())
			_, err := c.dev.qp.Query()
			c.tried(err)
		},
		sound:     "refused; refused",
		defective: "taken; refused",
	},
	"ClosedCount": {
		talk: func(c *talk) {
			n := 1 // of the rig's
			for ; n < 600; n++ {
				p, err := c.dev.d.AllocPD()
				if errors.Is(err, verbs.ErrNoMemory) {
					break
				}
				must.Do(c, err)
				must.Do(c, p.Close())
			}
			c.note("%d", n)
		},
		sound:     "600",
		defective: "512",
	},
	"DeviceCloseShallow": {
		talk: func(c *talk) {
			for range 2 {
				must.Do(c, c.dev.d.Close())
				_, err := c.dev.qp.Query()
				c.tried(err)
			}
		},
		sound:     "refused; refused",
		defective: "taken; refused",
	},
	"CloseLeavesWaiting": {
		talk: func(c *talk) {
			l := must.Get(must.Get(c.dev.d.CM())(c).Listen(c.dev.port(9), verbs.PortSpaceTCP, 1))(c)
			ch := must.Get(c.dev.d.CreateCompChannel())(c)
			c.aside(func() {
				_, err := ch.Wait(time.Millisecond)
				c.note("closed: %v", errors.Is(err, verbs.ErrClosed))
			})
			c.aside(func() {
				_, err := l.GetRequest(2 * time.Millisecond)
				c.note("closed: %v", errors.Is(err, verbs.ErrClosed))
			})
			c.proc.Sleep(time.Microsecond)
			must.Do(c, ch.Close())
			must.Do(c, l.Close())
		},
		sound:     "closed: true; closed: true",
		defective: "closed: false; closed: false",
	},
	"ObjectsUnchecked": {
		talk: func(c *talk) {
			for _, from := range []*side{c.dev, c.peer} {
				in := verbs.QPInit{Type: verbs.QPTypeRC, PD: from.pd, SendCQ: from.cq, RecvCQ: c.dev.cq}
				_, err := c.dev.d.CreateQP(in)
				c.tried(err)
				_, err = c.dev.d.CreateSRQ(verbs.SRQInit{PD: from.pd, MaxWR: 1, MaxSGE: 1})
				c.tried(err)
				_, err = c.dev.d.CreateCQ(verbs.CQInit{Depth: 1, Channel: from.ch})
				c.tried(err)
			}
			_, err := c.dev.d.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC})
			c.tried(err)
		},
		sound:     "taken; taken; taken; refused; refused; refused; refused",
		defective: "taken; taken; taken; taken; taken; taken; taken",
	},
	"WaitImpatient": {
		talk: func(c *talk) {
			_, err := c.dev.ch.Wait(time.Millisecond)
			c.tried(err)
			_, err = c.dev.d.WaitAsync(time.Millisecond)
			c.tried(err)
			c.note("%v", c.proc.Now().Round(time.Millisecond))
		},
		sound:     "refused; refused; 2ms",
		defective: "refused; refused; 0s",
	},
}
