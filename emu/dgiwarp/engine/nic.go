package engine

import (
	"fmt"
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
	Count    Counters
	PortDown bool

	cfg   Config
	gids  gidTable
	clock mono.Time // latest time passed to a method
	layer iwarp.Layer
	rd    *rd.Layer
	qps   nic.QPTable[QP]
	ahs   int // address handles
	mcast map[netip.Addr][]*QP

	messages partialTable[*message]
	records  partialTable[*record]
	errors   errorQueue
	outputQueues
	received
}

// outputQueues are the QPs and peers that may have output.
type outputQueues struct {
	sending          nic.FIFO[*QP]   // QPs with pending requests
	withOutput       nic.FIFO[*peer] // peers that may have segments to send
	awaitingReceives nic.FIFO[*QP]   // RD QPs whose peers wait for receives
	segment          iwarp.Segment   // scratch buffer of outputSegments
}

// received is the packet that Input handles.
type received struct {
	parsed     wire.Packet
	header     ddp.Header         // of its segment (UD)
	lastSource source             // its source, or that of an earlier packet
	grh        [verbs.GRHLen]byte // the octets before its message in the receive (UD)
}

// New returns a NIC with its port up, or an error that wraps ErrConfig.
func New(cfg Config) (*NIC, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &NIC{cfg: cfg, gids: gidTable{current: cfg.GIDs, initial: cfg.GIDs}, mcast: map[netip.Addr][]*QP{}, qps: nic.NewQPTable[QP](cfg.FirstQPN, cfg.Limits.QPs)}
	n.Init(cfg.Limits, cfg.Policy)
	n.Mem.Scramble(cfg.Secret) // makes STags unpredictable
	n.layer = iwarp.Layer{NIC: &n.Base}
	n.rd, err = rd.New(rd.Config{
		Secret: cfg.Secret, MaxPacket: cfg.safeDatagramPayload(), Limits: cfg.RD, Timing: cfg.Timing,
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

// StrictDeadline returns the time at which a sleeping driver must call Tick at the latest. It is
// later than Deadline if the next timer of RD may be handled late.
func (n *NIC) StrictDeadline() mono.Time {
	return min(n.rd.StrictDeadline(), n.messages.deadline(), n.records.deadline())
}

// Tick handles every deadline that has passed: those of the reliable layer, of UD messages that are
// not complete, which it drops, and of Write-Records, which it completes as they are.
func (n *NIC) Tick(now mono.Time) {
	n.clock = now
	n.rd.Tick(now)
	n.handleRDEvents(now)
	const oldest = 0
	for n.messages.deadline() <= now {
		n.messages.drop(oldest)
		n.Count.DropExpired++
	}
	for n.records.deadline() <= now {
		n.finishRecord(oldest)
	}
}

// SetPort takes the port up or down and reports the change.
func (n *NIC) SetPort(up bool) {
	if n.PortDown == !up {
		return
	}
	n.PortDown = !up
	e := nic.Event{Type: verbs.EventPortActive, Port: 1}
	if !up {
		e.Type = verbs.EventPortErr
	}
	n.Report(e)
}

// GIDs returns the GID table.
func (n *NIC) GIDs() []verbs.GIDEntry { return n.gids.current }

// SetGIDs replaces the GID table, as when the addresses of the host change, and reports a GID
// change event. Packets to and from removed addresses are then dropped. Empty entries are ignored.
func (n *NIC) SetGIDs(table []verbs.GIDEntry) {
	n.gids.current, n.gids.changed = table, true
	n.Report(nic.Event{Type: verbs.EventGIDChange, Port: 1})
}
