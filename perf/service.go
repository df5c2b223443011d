package perf

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/verbs"
)

// Service is the transport service of the queue pairs.
type Service uint8

const (
	// ServiceRC is the reliable connection of InfiniBand. Queue pairs are connected
	// by their attributes, have RNR, and a completion means arrival.
	ServiceRC Service = iota
	// ServiceIWARP is the connection of iWARP. The CM connects; a message without a
	// posted receive breaks the connection; and a completion means that the stream
	// has buffered the message.
	ServiceIWARP
	// ServiceUD is the unreliable datagram: messages may be lost, and without a
	// posted receive are. Only sends are possible.
	ServiceUD
	// ServiceUC is the unreliable connection: messages may be lost, as with ServiceUD. A stream of
	// WRITEs is not possible, because nothing tells that they have arrived.
	ServiceUC
	// ServiceXRC is ServiceRC with separate queue pairs for each direction, and receives in SRQs.
	ServiceXRC
	// ServiceRD is the reliable datagram of datagram-iWARP: ServiceRC without connections.
	ServiceRD
)

// serviceNames are the names of the services, by service.
var serviceNames = []string{"rc", "iwarp", "ud", "uc", "xrc", "rd"}

func (s Service) String() string { return serviceNames[s] }

// ServiceOf returns the service that name (rc, uc, ud, xrc or rd) selects on devices of a transport
// with these capabilities. The empty name selects rc, or ud if the devices have no connections.
func ServiceOf(transport verbs.Transport, caps verbs.Caps, name string) (Service, error) {
	iwarp := transport == verbs.TransportIWARP
	if name == "" {
		name = "ud"
		if caps.Has(verbs.CapRC) {
			name = "rc"
		}
	}
	need := map[string]verbs.Caps{"rc": verbs.CapRC, "iwarp": verbs.CapRC, "uc": verbs.CapUC, "ud": verbs.CapUD, "xrc": verbs.CapXRC, "rd": verbs.CapRD}
	i := slices.Index(serviceNames, name)
	switch {
	case i < 0:
		return 0, fmt.Errorf("no transport %q: there are rc, uc, ud, xrc and rd", name)
	case !caps.Has(need[name]):
		return 0, fmt.Errorf("the device has no transport %s", name)
	case iwarp && name == "rc":
		return ServiceIWARP, nil
	}
	return Service(i), nil
}

// qpTypes are the types of queue pairs, by service.
var qpTypes = [...]verbs.QPType{
	ServiceRC: verbs.QPTypeRC, ServiceIWARP: verbs.QPTypeRC, ServiceUD: verbs.QPTypeUD,
	ServiceUC: verbs.QPTypeUC, ServiceXRC: verbs.QPTypeXRCSend, ServiceRD: verbs.QPTypeUD,
}

// isDatagram reports whether work requests have the destination.
func (s Service) isDatagram() bool { return s == ServiceUD || s == ServiceRD }

// isLossy reports whether messages may be lost.
func (s Service) isLossy() bool { return s == ServiceUD || s == ServiceUC }

// needsCredits reports whether the receiver must send credits, because the service has no
// RNR: a message without a posted receive is lost or breaks the connection.
func (s Service) needsCredits() bool { return s.isLossy() || s == ServiceIWARP }

// checkOp returns an error if the service lacks an operation.
func (s Service) checkOp(op verbs.WROpcode) error {
	switch {
	case op == verbs.OpSend, !s.isLossy():
		return nil
	case op == verbs.OpRDMAWrite && s == ServiceUC:
		return nil
	}
	return fmt.Errorf("%v: the transport %v does not support it", op, s)
}
