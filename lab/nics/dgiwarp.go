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

// datagramIWARP returns the provider of datagram-iWARP NICs. With the option reliable, a NIC has
// ReliableCaps instead of Caps.
func datagramIWARP() *Provider {
	const caps = verbs.CapUD | verbs.CapSRQ | verbs.CapMWType1 | verbs.CapMWType2 | verbs.CapLocalInv | verbs.CapZeroBased | verbs.CapResizeCQ
	return datagramStack.addTo(&Provider{
		Name: "dgiwarp", Title: "datagram-iWARP", Transport: verbs.TransportIWARP, Protocol: conformance.DatagramIWARP,
		Caps:         caps | verbs.CapMulticast,
		ReliableCaps: caps | verbs.CapRD | verbs.CapAtomics | verbs.CapSendInv | verbs.CapCongestion,
		Dissector:    dgiwarp.Dissector{}, RetransmitCounter: "rd_sent_again", HasRNR: true,
		RankOptions: Options{"reliable": true},
		Defects:     fromTables(defects.Shared.All()),
	})
}

// datagramStack opens datagram-iWARP NICs.
var datagramStack = &stack[dgiwarp.Config, datagramOptions]{
	configure: func(cfg *dgiwarp.Config, options datagramOptions) {
		cfg.QP = dgiwarp.QPOptions{Reliable: options.Reliable, Isolate: options.IsolatePeers}
		cfg.NIC.Timing = options.timing()
	},
	setDefect: func(cfg *dgiwarp.Config, name string) bool { return defects.Shared.Set(&cfg.NIC.Policy, name) },
	setNIC: func(cfg *dgiwarp.Config, nic *NICConfig) {
		cfg.Name, cfg.Addrs, cfg.Costs = nic.Name, nic.addrs(), nic.costs()
	},
	inWorld: func(w *sim.World, port *sim.Port, nic *NICConfig, cfg dgiwarp.Config) (verbs.Context, error) {
		return asContext(dgiwarp.InWorld(w, port, nic.link(port), cfg))
	},
	onSockets: func(nic *NICConfig, cfg dgiwarp.Config) (verbs.Context, error) {
		cfg.Decorate = nic.captureLink()
		if nic.Cable != nil {
			return asContext(dgiwarp.OnCable(nic.Cable, cfg))
		}
		return asContext(dgiwarp.OnUDP(nic.sockets(), cfg))
	},
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

// timing returns the timers of the reliable service. 0 stands for the default. BusyLimit is how
// long a sender waits for a posted receive (RNR). If RetryTimeout is set, the retransmission
// timeout is fixed: an adaptive one of about a millisecond would expire on a busy machine.
func (o *datagramOptions) timing() (t rd.Timing) {
	t.BusyLimit = o.RNRTotal
	if o.RetryTimeout > 0 {
		normal := rd.DefaultTiming()
		timeout := max(o.RetryTimeout, normal.MinTimeout)
		t.FirstTimeout, t.MinTimeout, t.MaxTimeout = timeout, timeout, timeout
		retries := o.RetryTotal / o.RetryTimeout
		t.GiveUp = retries * timeout
		// The receiver must keep the state of a flow while its sender may reuse it or retransmit.
		// The second GiveUp is for a sender whose process stalls meanwhile.
		t.Idle = max(normal.Idle, normal.ReuseWithin+2*t.GiveUp)
	}
	return t
}
