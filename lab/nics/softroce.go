package nics

import (
	"errors"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/emu/softroce/flaw"
	"github.com/fabrictest/fabrictest/verbs"
)

func softRoCE() *Provider {
	p := &Provider{
		Name: "softroce", Title: "soft-RoCE", Stack: "RoCEv2 over UDP", Transport: verbs.TransportIB,
		Caps: verbs.CapRC | verbs.CapUC | verbs.CapUD | verbs.CapXRC | verbs.CapSRQ | verbs.CapMWType1 | verbs.CapMWType2 |
			verbs.CapAtomics | verbs.CapMulticast | verbs.CapSendInv | verbs.CapLocalInv | verbs.CapFlush | verbs.CapAtomicWrite |
			verbs.CapCM | verbs.CapCongestion | verbs.CapAutoMigration | verbs.CapCredits | verbs.CapZeroBased | verbs.CapResizeCQ,
		Dissector: softroce.Dissector{}, Resent: "retransmitted_pkts", RNR: true, Marks: true,
		with: func(s Setup) (Opener, error) {
			o, err := newRoCE(s)
			return o, err
		},
		setQuirk: func(spec string) error { return new(roceFlaws).set(spec) },
	}
	for _, q := range slices.Concat(engine.AllQuirks(), flaw.AllQuirks()) {
		p.Quirks = append(p.Quirks, Quirk{Name: q.Name, Defect: q.Defect, Does: q.Does})
	}
	p.Quirks = append(p.Quirks, managerQuirks...)
	return p
}

// roce opens soft-RoCE NICs.
type roce struct{ cfg softroce.Config }

func newRoCE(s Setup) (*roce, error) {
	var wrong roceFlaws
	for _, name := range s.Quirks {
		if err := wrong.set(name); err != nil {
			return nil, err
		}
	}
	switch {
	case s.Markers || s.NoCRC || s.ClientServer:
		return nil, errors.New("RoCE has neither markers, nor a CRC to do without, nor models of connections, which are MPA's")
	case s.Reliable || s.Isolate:
		return nil, errOnlyDatagramIWARP
	}
	o := new(roce)
	if s.ICRCOffloaded {
		o.cfg.NIC.ICRC = engine.ICRCOffloaded
	}
	if s.IgnoreMarks {
		ignoreMarks(&o.cfg.NIC)
	}
	o.cfg.NIC.Quirks, o.cfg.Flaws, o.cfg.CM.Quirks, o.cfg.CM.MaxConns = wrong.nic, wrong.wire, wrong.cm, s.Calls
	return o, nil
}

func (o *roce) at(p Place) softroce.Config {
	cfg := o.cfg
	cfg.Name, cfg.Addrs, cfg.NIC.LineRateBps = p.Name, p.addrs(), p.LineRateBps
	cfg.V1Addrs, cfg.NIC.PKeys = p.V1, p.PKeys
	cfg.Costs = p.costs()
	return cfg
}

// InWorld implements Opener.
func (o *roce) InWorld(w *sim.World, port *sim.Port, at Place) (verbs.Context, error) {
	d, err := softroce.InWorld(w, port, at.link(port), o.at(at))
	if err != nil {
		return nil, err
	}
	return d, nil
}

// OnSockets implements Opener.
func (o *roce) OnSockets(at Place) (verbs.Context, error) {
	cfg := o.at(at)
	if at.Capture != nil {
		cfg.Decorate = func(l link.Waiter) link.Waiter { return at.Capture.Wrap(at.Name, l).(link.Waiter) }
	}
	var sockets udplink.Config
	if at.Single {
		sockets.GSO = udplink.OffloadOff
	}
	d, err := softroce.OnUDP(sockets, cfg)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// ignoreMarks leaves the marks on packets and the notifications about them as
// they are, and lets no sender slow down for them: the lowest rate that control
// of congestion may choose is beyond any line's. The rest are its published
// constants, which must be sensible to be taken.
func ignoreMarks(nic *engine.Config) {
	const beyond = 10e12
	c := &nic.Congestion
	c.MinRateBps, c.MaxRateBps = beyond, beyond
	c.G = 1 << 22 // 1/256
	c.AlphaInterval, c.IncreaseInterval = 55*time.Microsecond, 55*time.Microsecond
	c.ByteCounter, c.FastRecovery = 10e6, 5
	c.RateAIBps, c.RateHAIBps = 40e6, 400e6
}
