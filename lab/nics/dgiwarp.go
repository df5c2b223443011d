package nics

import (
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/dgiwarp"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/rd"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// datagramIWARP returns the provider of datagram-iWARP NICs.
func datagramIWARP() *Provider {
	const caps = verbs.CapUD | verbs.CapSRQ | verbs.CapMWType1 | verbs.CapMWType2 | verbs.CapLocalInv | verbs.CapZeroBased | verbs.CapResizeCQ
	return &Provider{
		Name: "dgiwarp", Title: "datagram-iWARP", Stack: "iWARP over UDP", Transport: verbs.TransportIWARP, Protocol: conformance.DatagramIWARP,
		Caps:         caps | verbs.CapMulticast,
		ReliableCaps: caps | verbs.CapRD | verbs.CapAtomics | verbs.CapSendInv | verbs.CapCongestion,
		Dissector:    dgiwarp.Dissector{}, RetransmitCounter: "rd_sent_again", HasRNR: true, HasECN: true,
		Options:           optionNames[datagramOptions](),
		newOpener:         func(p *Provider, s Setup) (Opener, error) { return newDatagramOpener(p, s) },
		checkEngineDefect: func(spec string) error { return setDatagramDefect(new(dgiwarp.Config), spec) },
		Defects:           fromTables(defects.Shared.All()),
	}
}

// setDatagramDefect sets a defect of the engine in a configuration. It returns an error if
// there is no such defect.
func setDatagramDefect(cfg *dgiwarp.Config, spec string) error {
	return applyDefect(spec, func(name string) bool { return defects.Shared.Set(&cfg.NIC.Policy, name) })
}

// datagramOptions are the options of datagram-iWARP NICs.
type datagramOptions struct {
	// Reliable makes queue pairs reliable (RD). With IsolatePeers an error of one peer
	// does not move the queue pair to Error.
	Reliable     bool `json:"reliable"`
	IsolatePeers bool `json:"isolate_peers"`
	// RetryTimeout is the retransmission timeout, and RetryTotal the time until the service
	// gives up. Both are set, or neither; 0 means the default.
	RetryTimeout time.Duration `json:"retry_timeout"`
	RetryTotal   time.Duration `json:"retry_total"`
	// RNRTotal is how long it retries while the receiver has no receive posted; 0 means
	// as long as the receiver answers.
	RNRTotal time.Duration `json:"rnr_total"`
}

// datagramOpener opens datagram-iWARP NICs.
type datagramOpener struct {
	caps verbs.Caps
	cfg  dgiwarp.Config
}

// newDatagramOpener returns an opener of datagram-iWARP NICs with the defects and options of a
// setup.
func newDatagramOpener(p *Provider, s Setup) (*datagramOpener, error) {
	o := &datagramOpener{caps: p.Caps}
	for _, name := range s.Defects {
		if err := setDatagramDefect(&o.cfg, name); err != nil {
			return nil, err
		}
	}
	options, err := decode(p, s.Options, datagramOptions{})
	if err != nil {
		return nil, err
	}
	if options.Reliable {
		o.caps = p.ReliableCaps
	}
	o.cfg.QP = dgiwarp.QPOptions{Reliable: options.Reliable, Isolate: options.IsolatePeers}
	o.cfg.NIC.Timing = options.timing()
	return o, nil
}

// Caps implements Opener.
func (o *datagramOpener) Caps() verbs.Caps { return o.caps }

// timing returns the timers of the reliable service. If RetryTimeout is set, the retransmission
// timeout is fixed: an adaptive one of about a millisecond would expire on a busy machine.
func (b *datagramOptions) timing() (t rd.Timing) {
	t.BusyLimit = b.RNRTotal
	if b.RetryTimeout > 0 {
		normal := rd.DefaultTiming()
		timeout := max(b.RetryTimeout, normal.MinTimeout)
		t.FirstTimeout, t.MinTimeout, t.MaxTimeout = timeout, timeout, timeout
		retries := b.RetryTotal / b.RetryTimeout
		t.GiveUp = retries * timeout
		// The receiver keeps the state of a flow for as long as its sender may retransmit,
		// also if the sender's process stalls meanwhile.
		t.Idle = max(normal.Idle, normal.ReuseWithin+2*t.GiveUp)
	}
	return t
}

// deviceConfig returns the opener's configuration with the name, addresses and costs of a NIC.
func (o *datagramOpener) deviceConfig(nic NICConfig) dgiwarp.Config {
	cfg := o.cfg
	cfg.Name, cfg.Addrs = nic.Name, nic.addrs()
	cfg.Costs = nic.costs()
	return cfg
}

// InWorld implements Opener.
func (o *datagramOpener) InWorld(w *sim.World, port *sim.Port, at NICConfig) (verbs.Context, error) {
	return asContext(dgiwarp.InWorld(w, port, at.link(port), o.deviceConfig(at)))
}

// OnSockets implements Opener.
func (o *datagramOpener) OnSockets(at NICConfig) (verbs.Context, error) {
	cfg := o.deviceConfig(at)
	cfg.Decorate = at.captureLink()
	return asContext(dgiwarp.OnUDP(at.sockets(), cfg))
}
