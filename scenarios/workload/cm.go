package workload

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
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
	if !c.n.cfg.CM || c.calls() {
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

// calls reports whether this end calls the other: the lower rank does. A rank
// waits while it calls, and answers nobody then; so among ranks that wait for each
// other there is always one, the highest, that does not call.
func (c *conn) calls() bool { return c.n.rank.Rank < c.peer }

// joinByCM connects through the connection manager: one end calls, the other
// answers. An epoch's call says which edge and epoch it is for.
func (c *conn) joinByCM() (bool, error) {
	param := verbs.ConnParam{
		PrivateData:        fmt.Appendf(nil, "%d/%d", c.edge.id, c.epoch),
		ResponderResources: c.rail.reads, InitiatorDepth: c.rail.reads,
		RetryCount: uint8(*c.n.cfg.Retries), RNRRetryCount: uint8(*c.n.cfg.RNRRetries),
	}
	var err error
	if c.calls() {
		var m verbs.CM
		if m, err = c.rail.dev.CM(); err != nil {
			return false, err
		}
		c.link, err = m.Connect(c.qp, netip.AddrPortFrom(c.peerCard.GID.Addr(), c.peerCard.Port), param, callTimeout)
	} else {
		var request verbs.ConnRequest
		if request, err = c.rail.cm.request(string(param.PrivateData)); err != nil {
			return false, err
		}
		if request == nil {
			c.n.due(c.n.now + max(c.n.tick(), c.n.dozing())) // ask again then
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
	if fabricsFault(err) {
		// As if a request had failed.
		c.fail(verbs.WCRespTimeoutErr)
		return false, nil
	}
	return false, err
}

// devicesFault is what no fabric can make a connection manager say: it has been
// asked for something that it cannot do, or says so of something that it can.
var devicesFault = []error{
	verbs.ErrInvalid, verbs.ErrNotSupported, verbs.ErrBusy, verbs.ErrNoMemory, verbs.ErrPerm, verbs.ErrOverrun,
}

// fabricsDoing is what a fabric, or the peer at its other end, can make it say:
// nobody answers; the answer is a refusal (of a call that is stale by now, say), or
// so damaged that it cannot be taken; nothing leads there; the connection has
// ended before it was made.
var fabricsDoing = []error{verbs.ErrTimeout, verbs.ErrRejected, verbs.ErrNotFound, verbs.ErrClosed}

// fabricsFault reports whether the connection manager failed because of the fabric
// or the peer. All else, an error without any of these meanings included, is for
// the run to fail with: it says that the device, or this program, has a defect.
func fabricsFault(err error) bool {
	is := func(target error) bool { return errors.Is(err, target) }
	return !slices.ContainsFunc(devicesFault, is) && slices.ContainsFunc(fabricsDoing, is)
}

// turnAway refuses the calls for epochs that are over, and those that nobody
// understands. Who made one would wait for an answer until his patience ends.
func (n *node) turnAway() error {
	for _, r := range n.rails {
		if r.cm == nil {
			continue
		}
		if err := r.cm.hear(); err != nil {
			return err
		}
		for i := 0; i < len(r.cm.waiting); i++ {
			call := r.cm.waiting[i]
			var edge, epoch int
			_, err := fmt.Sscanf(trimmed(call.Param().PrivateData), "%d/%d", &edge, &epoch)
			// Nothing protects a request from damage, so that it may say anything.
			if c := n.byEdge[edge]; err == nil && c != nil && c.epoch <= epoch && c.state != connOver {
				continue
			}
			r.cm.waiting = append(r.cm.waiting[:i], r.cm.waiting[i+1:]...)
			i--
			if err := call.Reject(nil); err != nil && !fabricsFault(err) {
				return err
			}
		}
	}
	return nil
}

// request returns the call that names itself so; nil if it has not come.
func (s *switchboard) request(name string) (verbs.ConnRequest, error) {
	if err := s.hear(); err != nil {
		return nil, err
	}
	for i, r := range s.waiting {
		if trimmed(r.Param().PrivateData) == name {
			s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
			return r, nil
		}
	}
	return nil, nil
}

// hear takes the calls that have come.
func (s *switchboard) hear() error {
	for {
		r, err := s.listener.GetRequest(0)
		if errors.Is(err, verbs.ErrTimeout) {
			return nil
		}
		if err != nil {
			return err
		}
		s.waiting = append(s.waiting, r)
	}
}

func (s *switchboard) close() error { return s.listener.Close() }

// trimmed is private data without what the manager fills it up with.
func trimmed(b []byte) string {
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return string(b)
}
