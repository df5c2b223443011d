package cm

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/softroce/mad"
)

// ListenID names a listener of one Agent.
type ListenID uint32

type listenKey struct {
	service mad.ServiceID
	local   netip.Addr // zero for any
}

type listener struct {
	id      ListenID
	key     listenKey
	backlog int
	pending int // requests the consumer has not answered
}

// Listen takes requests for a service, those sent to one local address or, if
// local is the zero Addr, to any for which there is no listener of its own. At
// most backlog requests wait for their answer (0 for as many as the
// configuration allows); more are dropped, so that their senders try again.
func (a *Agent) Listen(service mad.ServiceID, local netip.Addr, backlog int) (ListenID, error) {
	key := listenKey{service, plain(local)}
	if a.listeners[key] != nil {
		return 0, fmt.Errorf("listen on %v: %w", service, ErrInUse)
	}
	if len(a.listeners) >= a.cfg.MaxListeners {
		return 0, fmt.Errorf("listen on %v: %w: %d listeners", service, ErrLimit, len(a.listeners))
	}
	if backlog <= 0 || backlog > a.cfg.MaxBacklog {
		backlog = a.cfg.MaxBacklog
	}
	a.nextListen++
	l := &listener{id: a.nextListen, key: key, backlog: backlog}
	a.listeners[key], a.listenIDs[l.id] = l, l
	return l.id, nil
}

// CloseListen takes no more requests. Those already announced by an event are
// still the consumer's to answer.
func (a *Agent) CloseListen(id ListenID) error {
	l := a.listenIDs[id]
	if l == nil {
		return fmt.Errorf("close listener %d: %w", id, ErrUnknown)
	}
	delete(a.listenIDs, id)
	delete(a.listeners, l.key)
	return nil
}

func (a *Agent) listenerFor(service mad.ServiceID, to netip.Addr) *listener {
	if l := a.listeners[listenKey{service, to}]; l != nil {
		return l
	}
	return a.listeners[listenKey{service, netip.Addr{}}]
}
