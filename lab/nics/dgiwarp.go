package nics

import (
	"errors"

	"github.com/fabrictest/fabrictest/emu/defects/dgwire"
	"github.com/fabrictest/fabrictest/emu/defects/imitate"
	"github.com/fabrictest/fabrictest/emu/dgiwarp"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/rd"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

func datagramIWARP() *Provider {
	const caps = verbs.CapUD | verbs.CapSRQ | verbs.CapMWType1 | verbs.CapMWType2 | verbs.CapLocalInv | verbs.CapZeroBased | verbs.CapResizeCQ
	return &Provider{
		Name: "dgiwarp", Title: "datagram-iWARP", Stack: "iWARP over UDP", Transport: verbs.TransportIWARP,
		Caps:         caps | verbs.CapMulticast,
		ReliableCaps: caps | verbs.CapRD | verbs.CapAtomics | verbs.CapSendInv | verbs.CapCongestion,
		Dissector:    dgiwarp.Dissector{}, RetransmitCounter: "rd_sent_again", HasRNR: true, HasECN: true,
		newOpener: func(s Setup) (Opener, error) {
			o, err := newDatagramOpener(s)
			return o, err
		},
		setDefect: func(spec string) error { return setDatagramDefect(new(dgiwarp.Config), spec) },
		Defects:   describe(dgwire.AllDefects(), imitate.Shared.All()),
	}
}

// setDatagramDefect sets a defect of the packets or of the engine in a configuration. It
// returns an error if there is no such defect.
func setDatagramDefect(cfg *dgiwarp.Config, spec string) error {
	return applyDefect(spec,
		func(name string) bool { return cfg.Defects.Set(name, true) == nil },
		func(name string) bool { return imitate.Shared.Set(&cfg.NIC.Policy, name) })
}

// datagramOpener opens datagram-iWARP NICs.
type datagramOpener struct{ cfg dgiwarp.Config }

func newDatagramOpener(s Setup) (*datagramOpener, error) {
	o := new(datagramOpener)
	for _, name := range s.Defects {
		if err := setDatagramDefect(&o.cfg, name); err != nil {
			return nil, err
		}
	}
	switch {
	case s.ICRCOffloaded:
		return nil, errors.New("iWARP has no ICRC")
	case s.NoRateControl:
		return nil, errors.New("the rate control of datagram-iWARP cannot be switched off")
	case s.Markers || s.NoMPACRC || s.ClientServer:
		return nil, errors.New("datagram-iWARP has no MPA: no markers, no optional CRC, and no connection models")
	}
	o.cfg.QP = dgiwarp.QPOptions{Reliable: s.Reliable, Isolate: s.IsolatePeers}
	o.cfg.NIC.Timing = rdTiming(&s.Retry)
	return o, nil
}

// rdTiming returns the timers of the reliable service for fixed retry times. The
// measured timeout of about a millisecond would expire on a busy machine.
func rdTiming(b *RetryTimes) (t rd.Timing) {
	t.BusyLimit = b.RNR
	if b.Timeout > 0 {
		normal := rd.DefaultTiming()
		wait := max(b.Timeout, normal.MinTimeout)
		t.FirstTimeout, t.MinTimeout, t.MaxTimeout = wait, wait, wait
		t.GiveUp = b.Total / b.Timeout * wait
		// The receiver keeps the state of a flow for as long as its sender may retransmit,
		// also if the sender's process stalls meanwhile.
		t.Idle = max(normal.Idle, normal.Fresh+2*t.GiveUp)
	}
	return t
}

func (o *datagramOpener) deviceConfig(p NICConfig) dgiwarp.Config {
	cfg := o.cfg
	cfg.Name, cfg.Addrs = p.Name, p.addrs()
	cfg.Costs = p.costs()
	return cfg
}

// InWorld implements Opener.
func (o *datagramOpener) InWorld(w *sim.World, port *sim.Port, at NICConfig) (verbs.Context, error) {
	d, err := dgiwarp.InWorld(w, port, at.link(port), o.deviceConfig(at))
	if err != nil {
		return nil, err
	}
	return d, nil
}

// OnSockets implements Opener.
func (o *datagramOpener) OnSockets(at NICConfig) (verbs.Context, error) {
	cfg := o.deviceConfig(at)
	if at.Capture != nil {
		cfg.Decorate = func(l link.Waiter) link.Waiter { return at.Capture.Wrap(at.Name, l).(link.Waiter) }
	}
	var sockets udplink.Config
	if at.NoGSO {
		sockets.GSO = udplink.OffloadOff
	}
	d, err := dgiwarp.OnUDP(sockets, cfg)
	if err != nil {
		return nil, err
	}
	return d, nil
}
