package workload

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// switchboard is where one rail's calls for connections come in.
type switchboard struct {
	listener verbs.Listener
	waiting  []verbs.ConnRequest
}

// callTimeout is how long a rank waits for the connection manager at a time. It
// covers a few tries of the manager's own.
const callTimeout = 20 * time.Second

// listen makes sure that calls to this end are answered, and tells the peer
// where.
func (c *conn) listen(k *card) error {
	if !c.n.cfg.CM || c.me == 0 {
		return nil
	}
	r := c.rail
	if r.cm == nil {
		m, err := r.dev.CM()
		if err != nil {
			return err
		}
		l, err := m.Listen(netip.AddrPortFrom(r.gid.Addr(), 0), verbs.PortSpaceTCP, 0)
		if err != nil {
			return err
		}
		r.cm = &switchboard{listener: l}
	}
	k.Port = r.cm.listener.Addr().Port()
	return nil
}

// joinByCM connects through the connection manager: the first end of an edge
// calls, the other answers. An epoch's call says which edge and epoch it is for.
func (c *conn) joinByCM() (bool, error) {
	param := verbs.ConnParam{
		PrivateData:        fmt.Appendf(nil, "%d/%d", c.edge.id, c.epoch),
		ResponderResources: c.rail.reads, InitiatorDepth: c.rail.reads,
		RetryCount: uint8(*c.n.cfg.Retries), RNRRetryCount: uint8(*c.n.cfg.RNRRetries),
	}
	var err error
	if c.me == 0 {
		var m verbs.CM
		if m, err = c.rail.dev.CM(); err != nil {
			return false, err
		}
		c.link, err = m.Connect(c.qp, netip.AddrPortFrom(c.peerCard.GID.Addr(), c.peerCard.Port), param, callTimeout)
	} else {
		request := c.rail.cm.request(string(param.PrivateData))
		if request == nil {
			c.n.timer(c.n.now + max(c.n.tick(), c.n.dozing()))
			return false, nil
		}
		c.link, err = request.Accept(c.qp, param, callTimeout)
	}
	c.n.now = c.n.proc.Now()
	c.n.lastMove = c.n.now
	if err == nil {
		return true, nil
	}
	c.link = nil
	if errors.Is(err, verbs.ErrTimeout) || errors.Is(err, verbs.ErrRejected) || errors.Is(err, verbs.ErrClosed) {
		// The fabric failed, not the program: as if a request had.
		c.fail(verbs.WCRespTimeoutErr)
		return false, nil
	}
	return false, err
}

// request returns the call that names itself so, if it has come.
func (s *switchboard) request(name string) verbs.ConnRequest {
	for {
		r, err := s.listener.Next(0)
		if err != nil {
			break
		}
		s.waiting = append(s.waiting, r)
	}
	for i, r := range s.waiting {
		if trimmed(r.Param().PrivateData) == name {
			s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
			return r
		}
	}
	return nil
}

func (s *switchboard) close() error { return s.listener.Close() }

// trimmed is private data without what the manager fills it up with.
func trimmed(b []byte) string {
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return string(b)
}
