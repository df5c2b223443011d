package perflab

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/verbs"
)

// opener opens the device of a host; with offloaded, without CRC.
type opener func(addr netip.Addr, offloaded bool) (verbs.Context, error)

// deviceKind is a kind of device that can be measured.
type deviceKind struct {
	open    opener
	service perf.Service
}

// deviceKinds are the kinds that a host can open, by protocol.
var deviceKinds = map[conformance.Protocol]deviceKind{
	conformance.RoCE:          {openProvider(conformance.RoCE), perf.ServiceRC},
	conformance.IWARP:         {openProvider(conformance.IWARP), perf.ServiceIWARP},
	conformance.DatagramIWARP: {openProvider(conformance.DatagramIWARP), perf.ServiceUD},
}

// openProvider returns a function that opens emulated devices of a protocol on sockets. An
// offloaded device neither computes nor checks CRCs, as if hardware did.
func openProvider(protocol conformance.Protocol) opener {
	return func(addr netip.Addr, offloaded bool) (verbs.Context, error) {
		p := nics.OfProtocol(protocol)
		var s nics.Setup
		if offloaded {
			if p.CRCOption == "" {
				return nil, fmt.Errorf("%s without CRC: %w", p.Title, errors.ErrUnsupported)
			}
			s.Options = nics.Options{p.CRCOption: false}
		}
		o, err := p.NewOpener(s)
		if err != nil {
			return nil, err
		}
		return o.OnSockets(nics.NICConfig{Addr: addr})
	}
}
