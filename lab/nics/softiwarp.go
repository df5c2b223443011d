package nics

import (
	"errors"

	"github.com/fabrictest/fabrictest/emu/defects/imitate"
	"github.com/fabrictest/fabrictest/emu/defects/iwarpwire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/tcplink"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

func softIWARP() *Provider {
	const flushed = "a broken connection flushes posted requests"
	return &Provider{
		Name: "softiwarp", Title: "soft-iWARP", Stack: "iWARP over TCP", Transport: verbs.TransportIWARP, OverTCP: true,
		Caps: verbs.CapRC | verbs.CapSRQ | verbs.CapMWType1 | verbs.CapMWType2 | verbs.CapAtomics |
			verbs.CapSendInv | verbs.CapLocalInv | verbs.CapCM | verbs.CapZeroBased | verbs.CapResizeCQ,
		UnreportedStatuses: map[verbs.WCStatus]string{
			verbs.WCRetryExcErr:    flushed,
			verbs.WCRNRRetryExcErr: "a message without a posted receive ends the connection",
			verbs.WCRemInvReqErr:   "the peer reports the error by a Terminate message",
		},
		newOpener: func(s Setup) (Opener, error) { return newIWARPOpener(s) },
		setDefect: func(spec string) error { return setIWARP(new(softiwarp.Config), spec) },
		Defects: describe(
			imitate.IWARP.All(), imitate.MPA.All(), imitate.RDMAP.All(), imitate.Shared.All(), iwarpwire.AllDefects()),
	}
}

// iwarpOpener opens soft-iWARP NICs.
type iwarpOpener struct{ cfg softiwarp.Config }

func newIWARPOpener(s Setup) (*iwarpOpener, error) {
	o := new(iwarpOpener)
	for _, name := range s.Defects {
		if err := setIWARP(&o.cfg, name); err != nil {
			return nil, err
		}
	}
	switch {
	case s.ICRCOffloaded:
		return nil, errors.New("iWARP has no ICRC")
	case s.NoRateControl:
		return nil, errors.New("TCP controls the rate of iWARP")
	case s.Reliable || s.IsolatePeers:
		return nil, errOnlyDatagramIWARP
	}
	o.cfg.NIC.MPA.Markers, o.cfg.NIC.MPA.NoCRC, o.cfg.ClientServer = s.Markers, s.NoMPACRC, s.ClientServer
	return o, nil
}

// setIWARP sets a defect of the engine or of the packets.
func setIWARP(cfg *softiwarp.Config, spec string) error {
	return applyDefect(spec,
		func(name string) bool { return imitate.SoftIWARP(&cfg.NIC.Policy, name) },
		func(name string) bool { return cfg.Defects.Set(name, true) == nil })
}

func (o *iwarpOpener) deviceConfig(p NICConfig) softiwarp.Config {
	cfg := o.cfg
	cfg.Name, cfg.Addrs = p.Name, p.addrs()
	cfg.Costs = p.costs()
	return cfg
}

// InWorld implements Opener.
func (o *iwarpOpener) InWorld(w *sim.World, port *sim.Port, at NICConfig) (verbs.Context, error) {
	var n link.StreamNet = port.StreamHost()
	if at.WrapStreams != nil {
		n = at.WrapStreams(n)
	}
	d, err := softiwarp.InWorld(w, port, n, o.deviceConfig(at))
	if err != nil {
		return nil, err
	}
	return d, nil
}

// OnSockets implements Opener.
func (o *iwarpOpener) OnSockets(at NICConfig) (verbs.Context, error) {
	cfg := o.deviceConfig(at)
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
