package nics

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/emu/dgiwarp"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/flaw"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/rd"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

func datagramIWARP() *Provider {
	const caps = verbs.CapUD | verbs.CapSRQ | verbs.CapMWType1 | verbs.CapMWType2 | verbs.CapLocalInv | verbs.CapZeroBased | verbs.CapResizeCQ
	p := &Provider{
		Name: "dgiwarp", Title: "datagram-iWARP", Stack: "iWARP over UDP", Transport: verbs.TransportIWARP,
		Caps:         caps | verbs.CapMulticast,
		ReliableCaps: caps | verbs.CapRD | verbs.CapAtomics | verbs.CapSendInv | verbs.CapCongestion,
		Dissector:    dgiwarp.Dissector{}, Resent: "rd_sent_again", RNR: true, Marks: true,
		with: func(s Setup) (Opener, error) {
			o, err := newDatagrams(s)
			return o, err
		},
		setQuirk: func(spec string) error { return setDatagrams(new(dgiwarp.Config), spec) },
	}
	for _, q := range slices.Concat(flaw.AllQuirks(), engine.AllQuirks()) {
		p.Quirks = append(p.Quirks, Quirk{Name: q.Name, Defect: q.Defect, Does: q.Does})
	}
	return p
}

// setDatagrams switches a quirk on: one of the packets, or one of the NIC itself.
func setDatagrams(cfg *dgiwarp.Config, spec string) error {
	name, _, hasNumber := strings.Cut(spec, "=")
	switch {
	case cfg.Flaws.Set(name, true) != nil && cfg.NIC.Quirks.Set(name, true) != nil:
		return &UnknownQuirkError{Name: name}
	case hasNumber:
		return fmt.Errorf("quirk %s: it takes no number", spec)
	}
	return nil
}

// datagrams opens datagram-iWARP NICs.
type datagrams struct{ cfg dgiwarp.Config }

func newDatagrams(s Setup) (*datagrams, error) {
	o := new(datagrams)
	for _, name := range s.Quirks {
		if err := setDatagrams(&o.cfg, name); err != nil {
			return nil, err
		}
	}
	switch {
	case s.ICRCOffloaded:
		return nil, errors.New("iWARP has no ICRC, which is RoCE's")
	case s.IgnoreMarks:
		return nil, errors.New("datagram-iWARP heeds congestion marks: its control of congestion cannot be switched off")
	case s.Markers || s.NoCRC || s.ClientServer:
		return nil, errors.New("datagram-iWARP has neither markers, nor a CRC to do without, nor models of connections, which are MPA's")
	}
	o.cfg.QP = dgiwarp.QPOptions{Reliable: s.Reliable, Isolate: s.Isolate}
	o.cfg.NIC.Timing = timing(&s.Budget)
	return o, nil
}

// timing has the reliable service keep to a budget: its timer is what the budget
// says, and not what it measures. Left to itself, it would send again after a
// millisecond what a busy machine has not got round to answering.
func timing(b *Budget) (t rd.Timing) {
	t.BusyLimit = b.Busy
	if b.Wait > 0 {
		normal := rd.DefaultTiming()
		wait := max(b.Wait, normal.MinTimeout)
		t.FirstTimeout, t.MinTimeout, t.MaxTimeout = wait, wait, wait
		t.GiveUp = b.All / b.Wait * wait
		// The receiver remembers a flow for as long as its sender may go on with it,
		// also if the sender's process stalls for as long as it tries.
		t.Idle = max(normal.Idle, normal.Fresh+2*t.GiveUp)
	}
	return t
}

func (o *datagrams) at(p Place) dgiwarp.Config {
	cfg := o.cfg
	cfg.Name, cfg.Addrs = p.Name, p.addrs()
	cfg.Costs = p.costs()
	return cfg
}

// InWorld implements Opener.
func (o *datagrams) InWorld(w *sim.World, port *sim.Port, at Place) (verbs.Context, error) {
	d, err := dgiwarp.InWorld(w, port, at.link(port), o.at(at))
	if err != nil {
		return nil, err
	}
	return d, nil
}

// OnSockets implements Opener.
func (o *datagrams) OnSockets(at Place) (verbs.Context, error) {
	cfg := o.at(at)
	if at.Capture != nil {
		cfg.Decorate = func(l link.Waiter) link.Waiter { return at.Capture.Wrap(at.Name, l).(link.Waiter) }
	}
	var sockets udplink.Config
	if at.Single {
		sockets.GSO = udplink.OffloadOff
	}
	d, err := dgiwarp.OnUDP(sockets, cfg)
	if err != nil {
		return nil, err
	}
	return d, nil
}
