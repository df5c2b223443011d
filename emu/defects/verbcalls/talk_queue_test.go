package verbcalls

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// queueTalks are about completion queues and channels.
var queueTalks = map[string]defectTalk{
	"CQDepthUnchecked": {
		talk: func(c *talk) {
			for _, depth := range []int{0, 1 << 30} {
				_, err := c.dev.d.CreateCQ(verbs.CQInit{Depth: depth})
				c.tried(err)
				c.tried(c.dev.cq.Resize(depth))
			}
		},
		sound:     "refused; refused; refused; refused",
		defective: "taken; taken; taken; taken",
	},
	"CQDepthShort": {
		talk:      func(c *talk) { c.note("%d", must.Get(c.dev.d.CreateCQ(verbs.CQInit{Depth: 9}))(c).Depth()) },
		sound:     "9",
		defective: "5",
	},
	"PollEmptyFails": {
		talk: func(c *talk) {
			n, err := c.dev.cq.Poll(make([]verbs.WC, 1))
			c.note("%d", n)
			c.tried(err)
		},
		sound:     "0; taken",
		defective: "0; refused",
	},
	"PollReversed": {
		talk:      func(c *talk) { c.written(3) },
		sound:     "1 SUCCESS 0B; 2 SUCCESS 0B; 3 SUCCESS 0B",
		defective: "2 SUCCESS 0B; 1 SUCCESS 0B; 3 SUCCESS 0B",
	},
	"PollDiscards": {
		talk:      func(c *talk) { c.written(3) },
		sound:     "1 SUCCESS 0B; 2 SUCCESS 0B; 3 SUCCESS 0B",
		defective: "1 SUCCESS 0B; 2 SUCCESS 0B",
	},
	"CQsSwapped": {
		talk: func(c *talk) {
			other := must.Get(c.dev.d.CreateCQ(verbs.CQInit{Depth: 8}))(c)
			c.dev.qp = c.dev.newQP(func(in *verbs.QPInit) { in.RecvCQ = other })
			c.connect()
			c.dev.recv(1)
			c.peer.post(c.peer.wr(2, verbs.OpSend))
			c.dev.done()
		},
		sound:     "",
		defective: "1 SUCCESS 8B",
	},
	"ResizeLoses": {
		talk: func(c *talk) {
			c.connect()
			c.dev.post(c.dev.wr(1, verbs.OpRDMAWrite))
			c.proc.Sleep(time.Millisecond)
			must.Do(c, c.dev.cq.Resize(32))
			c.dev.done()
		},
		sound:     "1 SUCCESS 0B",
		defective: "",
	},
	"ResizeUnchecked": {
		talk: func(c *talk) {
			c.connect()
			c.dev.post(c.dev.wr(1, verbs.OpRDMAWrite), c.dev.wr(2, verbs.OpRDMAWrite))
			c.proc.Sleep(time.Millisecond)
			c.tried(c.dev.cq.Resize(1))
			c.dev.done()
		},
		sound:     "refused; 1 SUCCESS 0B; 2 SUCCESS 0B",
		defective: "taken; 1 SUCCESS 0B; 2 SUCCESS 0B",
	},
	"ResizeNoop": {
		talk: func(c *talk) {
			c.tried(c.dev.cq.Resize(128))
			c.note("%d", c.dev.cq.Depth())
		},
		sound:     "taken; 128",
		defective: "taken; 64",
	},
	"ArmsWithoutChannel": {
		talk: func(c *talk) {
			cq := must.Get(c.dev.d.CreateCQ(verbs.CQInit{Depth: 1}))(c)
			c.tried(cq.ReqNotify(false))
		},
		sound:     "refused",
		defective: "taken",
	},
	"EventsHalved": {
		talk: func(c *talk) {
			c.connect()
			c.event(true)
			c.event(true)
			c.event(true)
			c.note("%v", c.proc.Now().Round(time.Millisecond))
		},
		sound:     "event; event; event; 0s",
		defective: "event; none; event; 10ms",
	},
	"EventsLate": {
		talk: func(c *talk) {
			c.connect()
			c.event(true)
			c.note("%v", c.proc.Now().Round(time.Second))
		},
		sound:     "event; 0s",
		defective: "event; 1m0s",
	},
	"ArmedFromBirth": {
		talk: func(c *talk) {
			c.connect()
			c.event(false)
		},
		sound:     "none",
		defective: "event",
	},
	"ArmLooksBack": {
		talk: func(c *talk) {
			c.connect()
			c.dev.post(c.dev.wr(1, verbs.OpRDMAWrite))
			c.proc.Sleep(time.Millisecond)
			must.Do(c, c.dev.cq.ReqNotify(false))
			c.heard()
			c.heard()
			c.dev.done()
			c.event(true)
		},
		sound:     "none; none; 1 SUCCESS 0B; event",
		defective: "event; none; 1 SUCCESS 0B; event",
	},
	"SolicitedIsAny": {
		talk: func(c *talk) {
			c.connect()
			must.Do(c, c.dev.cq.ReqNotify(true))
			c.event(false)
		},
		sound:     "none",
		defective: "event",
	},
	"SolicitedMisses": {
		talk: func(c *talk) {
			c.connect()
			must.Do(c, c.dev.cq.ReqNotify(true))
			c.dev.recv(1)
			send := c.peer.wr(2, verbs.OpSend)
			send.Flags |= verbs.SendSolicited
			c.peer.post(send)
			c.heard()
		},
		sound:     "event",
		defective: "none",
	},
	"ArmsCount": {
		talk: func(c *talk) {
			c.connect()
			must.Do(c, c.dev.cq.ReqNotify(false))
			c.event(true)
			c.heard()
			c.heard()
		},
		sound:     "event; none; none",
		defective: "event; event; none",
	},
	"EventNamesFirst": {
		talk: func(c *talk) {
			other := must.Get(c.dev.d.CreateCQ(verbs.CQInit{Depth: 8, Channel: c.dev.ch}))(c)
			c.dev.qp = c.dev.newQP(func(in *verbs.QPInit) { in.SendCQ = other })
			c.connect()
			must.Do(c, other.ReqNotify(false))
			c.dev.post(c.dev.wr(1, verbs.OpRDMAWrite))
			cq := must.Get(c.dev.ch.Wait(verbs.Forever))(c)
			c.note("%v", cq == other)
		},
		sound:     "true",
		defective: "false",
	},
}

// written connects and has n writes complete.
func (c *talk) written(n uint64) {
	c.Helper()
	c.connect()
	for id := range n {
		c.dev.post(c.dev.wr(id+1, verbs.OpRDMAWrite))
	}
	c.dev.done()
}

// event notes whether a completion is announced.
func (c *talk) event(arm bool) {
	c.Helper()
	if arm {
		must.Do(c, c.dev.cq.ReqNotify(false))
	}
	c.dev.post(c.dev.wr(1, verbs.OpRDMAWrite))
	c.heard()
}

// heard notes whether there is an event of the queue's soon.
func (c *talk) heard() {
	c.Helper()
	cq, err := c.dev.ch.Wait(10 * time.Millisecond)
	switch {
	case errors.Is(err, verbs.ErrTimeout):
		c.note("none")
	case err != nil || cq != c.dev.cq:
		c.Fatalf("%v, %v", cq, err)
	default:
		c.note("event")
	}
}
