package engine

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/internal/core"
	"github.com/fabrictest/fabrictest/emu/internal/dcqcn"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// NIC is a RoCEv2 NIC with one port.
type NIC struct {
	cfg   Config
	q     *Quirks
	Count Counters
	// Observer, if there is one, hears of every event when it is reported, even
	// of one that the queue has no room for. It must not call the NIC.
	Observer func(Event)

	mem    *core.Table
	pds    map[core.PD]int // users of each protection domain
	nextPD core.PD

	qps     []*QP // by number less FirstQPN
	qpCount int
	nextQP  int
	cqs     int
	ahs     int
	srqs    map[uint32]*SRQ
	nextSRQ uint32
	xrcds   map[*XRCD]struct{}
	mcast   map[netip.Addr][]*QP

	active  qpFIFO // QPs that may have something to send
	timers  timerHeap
	holds   holdQueue
	events  []Event
	fired   []*CQ // CQs whose arming was met
	madsIn  []MAD
	madsOut []MAD
	madPSN  wire.PSN
	cnps    []pendingCNP // CNPs for datagram senders

	portNotifier dcqcn.Notifier // Quirks.CNPPerPort
	flows        map[flow]*dcqcn.Notifier

	portDown bool
	dead     bool // Quirks.InvalidatePanics has struck
	moved    bool // the GID table changed: paths may lead from an address that is gone

	// rx caches the ICRC state of the last source, since packets come in runs.
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
	n := &NIC{
		cfg: cfg, mem: core.NewTable(cfg.Limits.MRs), pds: map[core.PD]int{}, nextPD: 1,
		srqs: map[uint32]*SRQ{}, nextSRQ: 1, xrcds: map[*XRCD]struct{}{}, mcast: map[netip.Addr][]*QP{},
	}
	n.q = &n.cfg.Quirks
	n.mem.Lax = cfg.Quirks.Memory
	return n, nil
}

// Event is an asynchronous event; what it is about is in the field of its type.
type Event struct {
	Type verbs.AsyncEventType
	QP   *QP
	CQ   *CQ
	SRQ  *SRQ
	Port uint8
}

// report queues an event. The queue is bounded: a consumer that never looks
// loses the newest ones.
func (n *NIC) report(e Event) {
	if len(n.events) < n.cfg.Limits.PendingEvents {
		n.events = append(n.events, e)
	} else {
		n.Count.EventsLost++
	}
	if n.Observer != nil {
		n.Observer(e)
	}
}

// retract drops the pending events about an object that goes away.
func (n *NIC) retract(about func(*Event) bool) {
	n.events = slices.DeleteFunc(n.events, func(e Event) bool { return about(&e) })
}

// NextEvent returns the oldest asynchronous event.
func (n *NIC) NextEvent() (Event, bool) { return popFront(&n.events) }

// CompletionEvents is how many CQs wait in NextCompletionEvent.
func (n *NIC) CompletionEvents() int { return len(n.fired) }

// NextCompletionEvent returns the next CQ whose arming was met.
func (n *NIC) NextCompletionEvent() (*CQ, bool) { return popFront(&n.fired) }

func popFront[T any](s *[]T) (v T, ok bool) {
	if len(*s) == 0 {
		return v, false
	}
	v = (*s)[0]
	*s = append((*s)[:0], (*s)[1:]...)
	return v, true
}

// Deadline is when Tick must be called next; mono.Never if not at all.
func (n *NIC) Deadline() mono.Time { return min(n.timers.next(), n.holds.next()) }

// StrictDeadline is when Tick must be called next if it may also come a
// millisecond late for ACKs that are held back with good reason: it leaves them
// out.
func (n *NIC) StrictDeadline() mono.Time {
	if n.holds.strict == 0 {
		return n.timers.next()
	}
	return n.Deadline()
}

// Tick handles every deadline that has passed.
func (n *NIC) Tick(now mono.Time) {
	for q := n.holds.due(now); q != nil; q = n.holds.due(now) {
		q.holdOver()
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

// SetPort takes the port up or down and reports the change.
func (n *NIC) SetPort(up bool) {
	if n.portDown == !up {
		return
	}
	n.portDown = !up
	e := Event{Type: verbs.EventPortActive, Port: 1}
	if !up {
		e.Type = verbs.EventPortErr
	}
	n.report(e)
}

// SetGIDs replaces the GID table, as a change of the host's addresses does.
// Packets to and from an address that is gone are dropped from then on.
func (n *NIC) SetGIDs(table []verbs.GIDEntry) {
	n.cfg.GIDs = table
	n.moved = true
	n.report(Event{Type: verbs.EventGIDChange, Port: 1})
}

// Config returns the configuration in force, defaults filled in.
func (n *NIC) Config() *Config { return &n.cfg }

// MTU is the largest path MTU the link carries.
func (n *NIC) MTU() verbs.MTU { return verbs.MTUFor(n.cfg.LinkMTU - encapsulation) }

// Port describes the port.
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

// gid returns entry i of the GID table if packets may carry it.
func (n *NIC) gid(i uint8) (netip.Addr, bool) {
	if int(i) >= len(n.cfg.GIDs) || n.cfg.GIDs[i].Type != verbs.GIDTypeRoCEv2 {
		return netip.Addr{}, false
	}
	return n.cfg.GIDs[i].GID.Addr(), true
}

// owns reports whether addr is a RoCEv2 address of the port.
func (n *NIC) owns(addr netip.Addr) bool {
	for i := range n.cfg.GIDs {
		if n.cfg.GIDs[i].Type == verbs.GIDTypeRoCEv2 && n.cfg.GIDs[i].GID.Addr() == addr {
			return true
		}
	}
	return false
}

// qp finds a QP by its number.
func (n *NIC) qp(qpn uint32) *QP {
	i := int(qpn) - int(n.cfg.FirstQPN)
	if i < 0 || i >= len(n.qps) {
		return nil
	}
	return n.qps[i]
}

// AllocPD makes a protection domain.
func (n *NIC) AllocPD() (core.PD, error) {
	if len(n.pds) >= n.cfg.Limits.PDs {
		return 0, opError("alloc_pd", "", "%w: %d domains", verbs.ErrNoMemory, len(n.pds))
	}
	pd := n.nextPD
	n.nextPD++
	n.pds[pd] = 0
	return pd, nil
}

// DeallocPD removes a protection domain that nothing lives in.
func (n *NIC) DeallocPD(pd core.PD) error {
	if err := n.checkPD("dealloc_pd", pd); err != nil {
		return err
	}
	if users := n.pds[pd]; users > 0 {
		return opError("dealloc_pd", fmt.Sprintf("pd %d", pd), "%w by %d objects", verbs.ErrBusy, users)
	}
	delete(n.pds, pd)
	return nil
}

// checkPD refuses a protection domain that does not exist.
func (n *NIC) checkPD(op string, pd core.PD) error {
	if _, ok := n.pds[pd]; !ok {
		return opError(op, fmt.Sprintf("pd %d", pd), "%w: no such protection domain", verbs.ErrInvalid)
	}
	return nil
}

// opError makes the error of a verb.
func opError(op, obj, format string, args ...any) error {
	return &verbs.OpError{Op: op, Obj: obj, Err: fmt.Errorf(format, args...)}
}
