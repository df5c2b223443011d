package workload

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// connListener receives the connection requests of one rail.
type connListener struct {
	listener verbs.Listener
	pending  []verbs.ConnRequest
}

// callTimeout limits a call of the connection manager. It covers several CM retransmissions.
const callTimeout = 20 * time.Second

// defaultBacklog lets the connection manager choose the backlog of a listener.
const defaultBacklog = 0

// listen returns the port of the rail's CM listener, which it opens at the first call.
func (r *rail) listen() (uint16, error) {
	if r.cm == nil {
		l, err := traffic.Listen(r.dev, r.gid.Addr(), verbs.PortSpaceTCP, defaultBacklog)
		if err != nil {
			return 0, err
		}
		r.cm = &connListener{listener: l}
	}
	return r.cm.listener.Addr().Port(), nil
}

// isActiveSide reports whether this end sends the connection request: the lower rank does. A rank
// accepts nothing while it connects, but it connects to higher ranks only: there is no deadlock.
func (l *link) isActiveSide() bool { return l.rank.Rank < l.peer.rank }

// connectCM connects through the connection manager: the active side sends a request, the other
// accepts it. Private data names the connection and its incarnation, one attempt to connect.
// connectCM reports whether the queue pair is connected: on the passive side it is not before the
// request has arrived.
func (l *link) connectCM() (bool, error) {
	param := verbs.ConnParam{
		PrivateData:        fmt.Appendf(nil, "%d/%d", l.edge.id, l.incarnation),
		ResponderResources: l.rail.maxReads, InitiatorDepth: l.rail.maxReads,
		RetryCount: uint8(*l.cfg.Retries), RNRRetryCount: uint8(*l.cfg.RNRRetries),
	}
	var err error
	if l.isActiveSide() {
		l.cmConn, err = traffic.Dial(l.rail.dev, l.QP, netip.AddrPortFrom(l.peerInfo.GID.Addr(), l.peerInfo.Port), param, callTimeout)
	} else {
		var request verbs.ConnRequest
		if request, err = l.rail.cm.request(string(param.PrivateData)); err != nil {
			return false, err
		}
		if request == nil {
			l.due(l.now + max(l.tick(), l.pollBackoff())) // arms the timer: poll again then
			return false, nil
		}
		l.cmConn, err = request.Accept(l.QP, param, callTimeout)
	}
	l.noteProgress()
	if err != nil {
		l.cmConn = nil
	}
	return err == nil, err
}

// deviceErrors are CM errors that no fabric can cause: the device or this program has a defect.
var deviceErrors = []error{
	verbs.ErrInvalid, verbs.ErrNotSupported, verbs.ErrBusy, verbs.ErrNoMemory, verbs.ErrPerm, verbs.ErrOverrun,
}

// fabricErrors are CM errors that the fabric or the peer can cause: no answer, a reject, a
// damaged answer, no route, or a disconnect while connecting.
var fabricErrors = []error{verbs.ErrTimeout, verbs.ErrRejected, verbs.ErrNotFound, verbs.ErrClosed}

// isFabricError reports whether the fabric or the peer made the connection manager fail. Other
// errors fail the run.
func isFabricError(err error) bool {
	is := func(target error) bool { return errors.Is(err, target) }
	return !slices.ContainsFunc(deviceErrors, is) && slices.ContainsFunc(fabricErrors, is)
}

// rejectStaleRequests rejects requests of earlier incarnations (attempts to connect), of
// connections that are over, and unreadable ones. Otherwise their senders would wait for a timeout.
func (n *node) rejectStaleRequests() error {
	for _, r := range n.rails {
		if r.cm == nil {
			continue
		}
		if err := r.cm.poll(); err != nil {
			return err
		}
		for i := 0; i < len(r.cm.pending); i++ {
			request := r.cm.pending[i]
			var edge, incarnation int
			_, err := fmt.Sscanf(trimPadding(request.Param().PrivateData), "%d/%d", &edge, &incarnation)
			// Private data is not protected against corruption.
			if c := n.byEdge[edge]; err == nil && c != nil && c.incarnation <= incarnation && c.state != connOver {
				continue
			}
			r.cm.pending = slices.Delete(r.cm.pending, i, i+1)
			i--
			if err := request.Reject(nil); err != nil && !isFabricError(err) {
				return err
			}
		}
	}
	return nil
}

// request removes and returns the pending request with name as private data; nil if there is none.
func (s *connListener) request(name string) (verbs.ConnRequest, error) {
	if err := s.poll(); err != nil {
		return nil, err
	}
	for i, r := range s.pending {
		if trimPadding(r.Param().PrivateData) == name {
			s.pending = slices.Delete(s.pending, i, i+1)
			return r, nil
		}
	}
	return nil, nil
}

// poll collects the requests that have arrived.
func (s *connListener) poll() error {
	for {
		r, err := s.listener.GetRequest(0)
		if errors.Is(err, verbs.ErrTimeout) {
			return nil
		}
		if err != nil {
			return err
		}
		s.pending = append(s.pending, r)
	}
}

// trimPadding removes the zero padding of private data.
func trimPadding(b []byte) string { return strings.TrimRight(string(b), "\x00") }
