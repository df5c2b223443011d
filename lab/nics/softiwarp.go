package nics

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/tcplink"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/flaw"
	"github.com/fabrictest/fabrictest/verbs"
)

func softIWARP() *Provider {
	const flushed = "a connection that breaks flushes what is posted"
	p := &Provider{
		Name: "softiwarp", Title: "soft-iWARP", Stack: "iWARP over TCP", Transport: verbs.TransportIWARP, Streams: true,
		Caps: verbs.CapRC | verbs.CapSRQ | verbs.CapMWType1 | verbs.CapMWType2 | verbs.CapAtomics |
			verbs.CapSendInv | verbs.CapLocalInv | verbs.CapCM | verbs.CapZeroBased | verbs.CapResizeCQ,
		Never: map[verbs.WCStatus]string{
			verbs.WCRetryExcErr:    flushed,
			verbs.WCRNRRetryExcErr: "a message that finds no receive ends the connection",
			verbs.WCRemInvReqErr:   "the peer says by a Terminate what it did not like",
		},
		with:     func(s Setup) (Opener, error) { return newIWARP(s) },
		setQuirk: func(spec string) error { return setIWARP(new(softiwarp.Config), spec) },
	}
	for _, q := range slices.Concat(engine.AllQuirks(), flaw.AllQuirks()) {
		p.Quirks = append(p.Quirks, Quirk{Name: q.Name, Defect: q.Defect, Does: q.Does})
	}
	return p
}

// iwarp opens soft-iWARP NICs.
type iwarp struct{ cfg softiwarp.Config }

func newIWARP(s Setup) (*iwarp, error) {
	o := new(iwarp)
	for _, name := range s.Quirks {
		if err := setIWARP(&o.cfg, name); err != nil {
			return nil, err
		}
	}
	switch {
	case s.ICRCOffloaded:
		return nil, errors.New("iWARP has no ICRC, which is RoCE's")
	case s.IgnoreMarks:
		return nil, errors.New("iWARP leaves the control of congestion to TCP")
	case s.Reliable || s.Isolate:
		return nil, errOnlyDatagramIWARP
	}
	o.cfg.NIC.MPA.Markers, o.cfg.NIC.MPA.NoCRC, o.cfg.ClientServer = s.Markers, s.NoCRC, s.ClientServer
	return o, nil
}

// setIWARP adds a flaw, of the NIC itself or of its wire.
func setIWARP(cfg *softiwarp.Config, spec string) error {
	name, _, hasNumber := strings.Cut(spec, "=")
	switch {
	case cfg.NIC.Quirks.Set(name, true) != nil && cfg.Flaws.Set(name, true) != nil:
		return &UnknownQuirkError{Name: name}
	case hasNumber:
		return fmt.Errorf("quirk %s: it takes no number", spec)
	}
	return nil
}

func (o *iwarp) at(p Place) softiwarp.Config {
	cfg := o.cfg
	cfg.Name, cfg.Addrs = p.Name, p.addrs()
	cfg.Costs = p.costs()
	return cfg
}

// InWorld implements Opener.
func (o *iwarp) InWorld(w *sim.World, port *sim.Port, at Place) (verbs.Context, error) {
	var n link.StreamNet = port.StreamHost()
	if at.Streams != nil {
		n = at.Streams(n)
	}
	d, err := softiwarp.InWorld(w, port, n, o.at(at))
	if err != nil {
		return nil, err
	}
	return d, nil
}

// OnSockets implements Opener.
func (o *iwarp) OnSockets(at Place) (verbs.Context, error) {
	cfg := o.at(at)
	if at.Capture != nil {
		cfg.Decorate = func(n link.StreamWaiter) link.StreamWaiter {
			return at.Capture.WrapStreams(at.Name, n).(link.StreamWaiter)
		}
	}
	d, err := softiwarp.OnTCP(tcplink.Config{}, cfg)
	if err != nil {
		return nil, err
	}
	return d, nil
}
