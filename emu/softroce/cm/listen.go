package cm

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// ListenID identifies a listener of an Agent.
type ListenID uint32

type listenKey struct {
	service wire.ServiceID
	local   netip.Addr // zero for any
}

type listener struct {
	id      ListenID
	key     listenKey
	backlog int
	pending int // requests that the consumer has not answered
}

// Listen accepts requests for a service at one local address or, if local is the zero Addr, at all
// addresses without their own listener. At most backlog requests wait for an answer (MaxBacklog of
// Config if backlog is 0 or exceeds that); further ones are dropped, and their senders retransmit.
func (a *Agent) Listen(service wire.ServiceID, local netip.Addr, backlog int) (ListenID, error) {
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

// CloseListen removes a listener. The consumer must still answer requests that it got events for.
func (a *Agent) CloseListen(id ListenID) error {
	l := a.listenIDs[id]
	if l == nil {
		return fmt.Errorf("close listener %d: %w", id, ErrUnknown)
	}
	delete(a.listenIDs, id)
	delete(a.listeners, l.key)
	return nil
}

// listenerFor returns the listener of a service at a local address, or else its listener at all
// addresses; nil if there is neither.
func (a *Agent) listenerFor(service wire.ServiceID, to netip.Addr) *listener {
	if l := a.listeners[listenKey{service, to}]; l != nil {
		return l
	}
	return a.listeners[listenKey{service, netip.Addr{}}]
}
