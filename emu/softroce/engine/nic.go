package engine

import (
	"iter"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// NIC is a RoCEv2 NIC with one port.
type NIC struct {
	nic.Base
	cfg    Config
	policy *Policy
	Count  Counters

	qps   nic.QPTable[QP]
	ahs   int
	mcast map[netip.Addr][]*QP

	active  qpQueue // QPs that may have something to send
	timers  qpTimers
	holds   holdQueue
	madsIn  []MAD
	madsOut []MAD
	madPSN  wire.PSN
	cnps    []pendingCNP // CNPs for datagram senders

	flows map[flow]*cnpNotifier

	portDown    bool
	dead        bool // stopped by the policy UnboundInvalidateFatal
	gidsChanged bool // a path may start at an address that was removed

	// rx is the ICRC state for rxSrc and rxDst, the addresses of the last packet received.
	rx       wire.ICRC
	rxSrc    netip.AddrPort
	rxDst    netip.AddrPort
	parsed   wire.Packet
	scratch  wire.Packet
	atomics  atomicUnit
	badPKeys uint32
	badQKeys uint32
}

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

// Deadline returns when Tick must be called next, or mono.Never.
func (n *NIC) Deadline() mono.Time { return min(n.timers.Next(), n.holds.next()) }

// StrictDeadline is Deadline without delayed ACKs that may be sent a millisecond
// late, because their peers have been shown not to wait for them.
func (n *NIC) StrictDeadline() mono.Time {
	if n.holds.strict == 0 {
		return n.timers.Next()
	}
	return n.Deadline()
}

// Tick handles all deadlines that have passed.
func (n *NIC) Tick(now mono.Time) {
	for q := n.holds.due(now); q != nil; q = n.holds.due(now) {
		q.holdExpired()
	}
	for {
		q := n.timers.due(now)
		if q == nil {
			return
		}
		q.tick(now)
		q.rearm()
	}
}

// SetPort sets the port state and raises PORT_ACTIVE or PORT_ERR.
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
	n.cfg.GIDs = table
	n.gidsChanged = true
	n.Report(nic.Event{Type: verbs.EventGIDChange, Port: 1})
}

// Config returns the configuration including defaults.
func (n *NIC) Config() *Config { return &n.cfg }

// MTU returns the largest path MTU that the link supports.
func (n *NIC) MTU() verbs.MTU { return verbs.MTUFor(n.cfg.LinkMTU - encapsulation) }

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

// gid returns the address of GID index i if it is a RoCEv2 GID.
func (n *NIC) gid(i uint8) (netip.Addr, bool) {
	if int(i) >= len(n.cfg.GIDs) || n.cfg.GIDs[i].Type != verbs.GIDTypeRoCEv2 {
		return netip.Addr{}, false
	}
	return n.cfg.GIDs[i].GID.Addr(), true
}

// owns reports whether addr is a RoCEv2 address of the port.
func (n *NIC) owns(addr netip.Addr) bool {
	for i := range n.cfg.GIDs {
		if e := &n.cfg.GIDs[i]; e.Type == verbs.GIDTypeRoCEv2 && e.GID.Addr() == addr {
			return true
		}
	}
	return false
}

// QPs iterates over the NIC's QPs in the order of their numbers.
func (n *NIC) QPs() iter.Seq[*QP] { return n.qps.All() }
