package engine

import (
	"iter"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/verbs"
)

// New returns a NIC with its port up.
func New(cfg Config) (*NIC, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &NIC{cfg: cfg, qps: nic.NewQPTable[QP](cfg.FirstQPN, cfg.Limits.QPs), mcast: map[netip.Addr][]*QP{}}
	n.policy = &n.cfg.Policy
	n.Init(cfg.Limits.Limits, cfg.Policy.Shared)
	n.Mem.Scramble(cfg.KeySecret)
	return n, nil
}

// Config returns the configuration including defaults.
func (n *NIC) Config() *Config { return &n.cfg }

// Port returns the port attributes.
func (n *NIC) Port() verbs.PortAttr {
	a := verbs.PortAttr{
		State: verbs.PortActive, MaxMTU: verbs.MTU4096, ActiveMTU: n.MTU(),
		GIDs: len(n.cfg.GIDs), PKeys: len(n.cfg.PKeys), MaxMsg: maxMessage,
		BadPKeys: n.badPKeys, QKeyViolations: n.badQKeys, RateBps: n.cfg.LineRateBps,
	}
	if n.portDown {
		a.State = verbs.PortDown
	}
	return a
}

// QPs iterates over the NIC's QPs in the order of their numbers.
func (n *NIC) QPs() iter.Seq[*QP] { return n.qps.All() }

// SetPort sets the port state, and raises PORT_ACTIVE or PORT_ERR if it changes.
func (n *NIC) SetPort(up bool) {
	if n.portDown == !up {
		return
	}
	n.portDown = !up
	e := nic.Event{Type: verbs.EventPortActive, Port: 1}
	if !up {
		e.Type = verbs.EventPortErr
	}
	n.Report(e)
}

// SetGIDs replaces the GID table after a change of host addresses. The NIC then
// drops packets to and from removed addresses.
func (n *NIC) SetGIDs(table []verbs.GIDEntry) {
	n.rx = receivedICRC{} // its destination may be another's now
	n.cfg.GIDs = table
	n.gidsChanged = true
	n.Report(nic.Event{Type: verbs.EventGIDChange, Port: 1})
}

// Counters returns all counters by name, in a fixed order.
func (n *NIC) Counters() []verbs.Counter {
	return append(counterNames.Append(nil, &n.Count),
		verbs.Counter{Name: "cq_overrun", Value: n.CQOverruns},
		verbs.Counter{Name: "events_lost", Value: n.EventsLost})
}

// CreateAH makes an address handle. It resolves the path now, but for the UDP source port.
func (n *NIC) CreateAH(pd nic.PD, attr verbs.AHAttr) (*AH, error) {
	if n.ahs >= n.cfg.Limits.AHs {
		return nil, nic.OpError("create_ah", "", "%w: %d handles", verbs.ErrNoMemory, n.ahs)
	}
	if attr.Port != 1 {
		return nil, nic.OpError("create_ah", "", "%w: port %d, there is only port 1", verbs.ErrInvalid, attr.Port)
	}
	if err := n.CheckPD("create_ah", pd); err != nil {
		return nil, err
	}
	p, err := n.cfg.resolve(&attr, 0, 0) // no QPs: choosePort sets the source port later
	if err != nil {
		return nil, &verbs.OpError{Op: "create_ah", Err: err}
	}
	n.ahs++
	n.UsePD(pd, 1)
	return &AH{Attr: attr, pd: pd, path: p}, nil
}

// DestroyAH removes an address handle.
func (n *NIC) DestroyAH(a *AH) {
	if a.gone {
		return
	}
	n.ahs--
	a.gone = true
	n.UsePD(a.pd, -1)
}
