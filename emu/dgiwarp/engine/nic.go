package engine

import (
	"fmt"
	"iter"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/rd"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/verbs"
)

// NIC is a datagram-iWARP NIC with one port.
type NIC struct {
	nic.Base
	Count Counters

	cfg     Config
	layer   iwarp.Layer
	rd      *rd.Layer
	qps     nic.QPTable[QP]
	count   int // QPs
	firstQP *QP // receives packets to QP 0 if it is the only QP
	ahs     int
	mcast   map[netip.Addr][]*QP

	sending     nic.FIFO[*QP]   // QPs with pending requests
	withOutput  nic.FIFO[*peer] // peers that may have segments to send
	peersWait   nic.FIFO[*QP]   // RD QPs that made peers wait for receives
	messages    partialTable[*message]
	records     partialTable[*record]
	errors      errorQueue
	portDown    bool
	gidsChanged bool             // SetGIDs was called: paths may use a removed address
	initialGIDs []verbs.GIDEntry // GID table of New

	clock      mono.Time // latest time passed to a method
	parsed     wire.Packet
	header     ddp.Header
	segment    iwarp.Segment
	area       [verbs.GRHLen]byte
	lastSource source // source of the last packet
}

// New returns a NIC with its port up.
func New(cfg Config) (*NIC, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &NIC{cfg: cfg, initialGIDs: cfg.GIDs, mcast: map[netip.Addr][]*QP{}, qps: nic.NewQPTable[QP](cfg.FirstQPN, cfg.Limits.QPs)}
	n.Init(cfg.Limits, cfg.Policy)
	n.Mem.Scramble(cfg.Secret)
	n.layer = iwarp.Layer{NIC: &n.Base}
	n.rd, err = rd.New(rd.Config{
		Secret: cfg.Secret, MaxPacket: cfg.surePacket(), Limits: cfg.RD, Timing: cfg.Timing,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	n.messages.limit, n.records.limit = cfg.Messages, cfg.Records
	n.errors.tokens = int64(cfg.ErrorBurst) * errorToken
	return n, nil
}

// Config returns the configuration with defaults filled in.
func (n *NIC) Config() *Config { return &n.cfg }

// Deadline returns when Tick must be called next, or mono.Never.
func (n *NIC) Deadline() mono.Time {
	return min(n.rd.Deadline(), n.messages.deadline(), n.records.deadline())
}

// StrictDeadline is Deadline, with a slack for the timers of RD that may be late.
func (n *NIC) StrictDeadline() mono.Time {
	return min(n.rd.StrictDeadline(), n.messages.deadline(), n.records.deadline())
}

// Tick handles every deadline that has passed.
func (n *NIC) Tick(now mono.Time) {
	n.clock = now
	n.rd.Tick(now)
	n.handleRDEvents(now)
	for n.messages.deadline() <= now {
		n.messages.drop(0)
		n.Count.DropExpired++
	}
	for n.records.deadline() <= now {
		n.finishRecord(0)
	}
}

// SetPort takes the port up or down and reports the change.
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

// SetGIDs replaces the GID table, as when the addresses of the host change. Packets to and
// from removed addresses are dropped. Empty entries are ignored.
func (n *NIC) SetGIDs(table []verbs.GIDEntry) {
	n.cfg.GIDs, n.gidsChanged = table, true
	n.Report(nic.Event{Type: verbs.EventGIDChange, Port: 1})
}

// PortDown reports whether the port is down.
func (n *NIC) PortDown() bool { return n.portDown }

// gid returns the address of the GID table entry with an index, and false if there is none.
func (n *NIC) gid(index uint8) (netip.Addr, bool) {
	for i := range n.cfg.GIDs {
		if e := &n.cfg.GIDs[i]; e.Index == int(index) && e.GID != (verbs.GID{}) {
			return e.GID.Addr(), true
		}
	}
	return netip.Addr{}, false
}

// owns reports whether a is an address of the NIC.
func (n *NIC) owns(a netip.Addr) bool {
	a = a.Unmap()
	for i := range n.cfg.GIDs {
		if g := n.cfg.GIDs[i].GID; g.Addr() == a && g != (verbs.GID{}) {
			return true
		}
	}
	return false
}

// someQP returns the QP with the lowest number for which ok returns true, or nil.
func (n *NIC) someQP(ok func(*QP) bool) *QP {
	for q := range n.QPs() {
		if ok(q) {
			return q
		}
	}
	return nil
}

// QPs iterates over the queue pairs in the order of their numbers.
func (n *NIC) QPs() iter.Seq[*QP] {
	return func(yield func(*QP) bool) {
		for i := range uint32(n.cfg.Limits.QPs) {
			if q := n.qps.At(n.cfg.FirstQPN + i); q != nil && !yield(q) {
				return
			}
		}
	}
}
