package verbcalls

import (
	"errors"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// managerTalks are about connection management.
var managerTalks = map[string]defectTalk{
	"ListenAddrZero": {
		talk:      func(c *talk) { c.note("%v", c.dev.listen(0, verbs.PortSpaceTCP).Addr().Port() > 0) },
		sound:     "true",
		defective: "false",
	},
	"PortsShared": {
		talk: func(c *talk) {
			c.dev.listen(9, verbs.PortSpaceTCP)
			_, err := c.dev.cm().Listen(c.dev.port(9), verbs.PortSpaceTCP, 1)
			c.tried(err)
		},
		sound:     "refused",
		defective: "taken",
	},
	"ListenerServesOne": {
		talk: func(c *talk) {
			l := c.dev.listen(9, verbs.PortSpaceTCP)
			for range 2 {
				c.aside(func() {
					_, err := c.peer.cm().Connect(c.peer.newQP(nil), c.dev.port(9), verbs.ConnParam{}, 10*time.Millisecond)
					c.note("timed out: %v", errors.Is(err, verbs.ErrTimeout))
				})
			}
			for range 2 {
				if r, err := l.GetRequest(5 * time.Millisecond); err == nil {
					must.Do(c, r.Reject(nil))
				}
			}
			c.note("%v", c.proc.Now().Round(time.Millisecond))
		},
		sound:     "0s; timed out: false; timed out: false",
		defective: "timed out: false; 5ms; timed out: true",
	},
	"AnswersTwice": {
		talk: func(c *talk) {
			l := c.dev.listen(9, verbs.PortSpaceTCP)
			c.aside(func() { c.peer.dial(c.dev, verbs.ConnParam{}) })
			r := must.Get(l.GetRequest(verbs.Forever))(c)
			first := must.Get(r.Accept(c.dev.qp, verbs.ConnParam{}, verbs.Forever))(c)
			again, err := r.Accept(c.dev.qp, verbs.ConnParam{}, verbs.Forever)
			c.tried(err)
			c.note("%v", again == first)
			c.tried(r.Reject(nil))
		},
		sound:     "connected; refused; false; refused",
		defective: "connected; taken; true; taken",
	},
	"CMTakesAnyQP": {
		talk: func(c *talk) {
			c.peer.answers(verbs.ConnParam{})
			must.Do(c, c.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1}, toInit))
			must.Do(c, c.dev.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
			c.dev.dial(c.peer, verbs.ConnParam{})
		},
		sound:     "invalid",
		defective: "connected",
	},
	"ConnParamLost": {
		talk: func(c *talk) {
			c.peer.answers(verbs.ConnParam{ResponderResources: 3, PrivateData: []byte("p")})
			p := c.dev.dial(c.peer, verbs.ConnParam{}).Param()
			c.note("%d %c", p.ResponderResources, p.PrivateData[0])
		},
		sound:     "connected; 3 p",
		defective: "connected; 0 p",
	},
	"PrivateDataLost": {
		talk: func(c *talk) {
			c.peer.rejects("no")
			_, err := c.dev.cm().Connect(c.dev.qp, c.peer.port(9), verbs.ConnParam{}, time.Second)
			var r *verbs.RejectError
			if !errors.As(err, &r) {
				c.Fatal(err)
			}
			c.note("%v %v", r.Reason, len(r.PrivateData) > 0)
		},
		sound:     "28 true",
		defective: "28 false",
	},
	"PrivateDataUnchecked": {
		talk: func(c *talk) {
			c.peer.answers(verbs.ConnParam{})
			c.dev.dial(c.peer, verbs.ConnParam{PrivateData: make([]byte, 1000)})
		},
		sound:     "invalid",
		defective: "connected",
	},
	"RemoteUnknown": {
		talk: func(c *talk) {
			c.peer.answers(verbs.ConnParam{})
			c.note("%v", c.dev.dial(c.peer, verbs.ConnParam{}).Remote())
		},
		sound:     "connected; [fd00::2]:9",
		defective: "connected; invalid AddrPort",
	},
	"RejectIsTimeout": {
		talk: func(c *talk) {
			c.peer.rejects("")
			c.dev.dial(c.peer, verbs.ConnParam{})
		},
		sound:     "rejected",
		defective: "timed out",
	},
	"CMTimeoutsTenfold": {
		talk: func(c *talk) {
			l := c.dev.listen(9, verbs.PortSpaceTCP)
			_, err := l.GetRequest(time.Millisecond)
			c.tried(err)
			_, err = l.GetRequest(0)
			c.tried(err)
			c.note("%v", c.proc.Now().Round(time.Millisecond))
		},
		sound:     "refused; refused; 1ms",
		defective: "refused; refused; 10ms",
	},
	"DisconnectSilent": {
		talk: func(c *talk) {
			c.peer.answers(verbs.ConnParam{})
			must.Do(c, c.dev.dial(c.peer, verbs.ConnParam{}).Disconnect())
			c.dev.state()
		},
		sound:     "connected; ERR",
		defective: "connected; RTS",
	},
	"EndUnnoticed": {
		talk: func(c *talk) {
			c.peer.answers(verbs.ConnParam{})
			conn := c.dev.dial(c.peer, verbs.ConnParam{})
			must.Do(c, conn.Disconnect())
			before := c.proc.Now()
			c.tried(conn.WaitDisconnect(time.Second))
			c.note("%v", (c.proc.Now() - before).Round(time.Millisecond))
		},
		sound:     "connected; taken; 0s",
		defective: "connected; refused; 1s",
	},
	"ResolvedKeyLost": {
		talk: func(c *talk) {
			c.peer.datagrams()
			l := c.peer.listen(9, verbs.PortSpaceUDP)
			c.aside(func() {
				r := must.Get(l.GetRequest(verbs.Forever))(c)
				_ = must.Get(r.Accept(c.peer.qp, verbs.ConnParam{}, verbs.Forever))(c)
			})
			p := must.Get(c.dev.cm().Resolve(c.peer.port(9), nil, time.Second))(c)
			c.note("%v %#x", p.QPN == c.peer.qp.QPN(), p.QKey)
		},
		sound:     "true 0x11",
		defective: "true 0x0",
	},
}

func (s *side) cm() verbs.CM { return must.Get(s.d.CM())(s.t) }

// port is a port at the side's address.
func (s *side) port(n uint16) netip.AddrPort { return netip.AddrPortFrom(s.addr, n) }

func (s *side) listen(n uint16, space verbs.PortSpace) verbs.Listener {
	s.t.Helper()
	return must.Get(s.cm().Listen(s.port(n), space, 4))(s.t)
}

// answers lets the side accept whoever asks.
func (s *side) answers(param verbs.ConnParam) {
	l := s.listen(9, verbs.PortSpaceTCP)
	s.t.aside(func() {
		if r, err := l.GetRequest(time.Second); err == nil {
			_ = must.Get(r.Accept(s.qp, param, verbs.Forever))(s.t)
		}
	})
}

// rejects lets the side refuse whoever asks.
func (s *side) rejects(why string) {
	l := s.listen(9, verbs.PortSpaceTCP)
	s.t.aside(func() { must.Do(s.t, must.Get(l.GetRequest(verbs.Forever))(s.t).Reject([]byte(why))) })
}

// dial asks the other side for a connection and notes how it went.
func (s *side) dial(other *side, param verbs.ConnParam) verbs.Conn {
	s.t.Helper()
	c, err := s.cm().Connect(s.qp, other.port(9), param, time.Second)
	switch {
	case err == nil:
		s.t.note("connected")
	case errors.Is(err, verbs.ErrInvalid):
		s.t.note("invalid")
	case errors.Is(err, verbs.ErrRejected):
		s.t.note("rejected")
	case errors.Is(err, verbs.ErrTimeout):
		s.t.note("timed out")
	default:
		s.t.Fatal(err)
	}
	return c
}
