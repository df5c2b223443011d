package sim

import (
	"cmp"
	"container/list"
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// NICCosts is the time that a NIC takes for packets, between its protocol engine and the cable. The
// zero value takes no time. The time of the host is [verbs.Costs].
type NICCosts struct {
	Send, Receive StageCosts
	// Units is the number of packets that each direction processes at a time; 0 means 1. Packets
	// of a flow, with the same addresses and ports of UDP or TCP, pass the same unit in order.
	Units int
	// PCIeBps is the rate between NIC and memory, which all units of a direction share; 0 means
	// unlimited.
	PCIeBps uint64
	// InlineBytes is the longest packet whose payload the host has written to the NIC. The NIC
	// fetches longer ones from memory, which takes DMARead. It writes a received packet to memory
	// after DMAWrite.
	InlineBytes       int
	DMARead, DMAWrite time.Duration
	// ContextEntries is the number of flows whose state the NIC has on board; 0 means all. It
	// fetches the state of another flow from memory, which takes ContextMiss.
	ContextEntries int
	ContextMiss    time.Duration
}

// StageCosts is the time of a unit for one direction. Packet and PicosecondsPerByte occupy the
// unit; during Latency it processes other packets.
type StageCosts struct {
	Packet             time.Duration
	PicosecondsPerByte int
	Latency            time.Duration
}

// validate returns an error for values out of range.
func (c *NICCosts) validate() error {
	var errs problems
	for _, d := range []time.Duration{c.Send.Packet, c.Send.Latency, c.Receive.Packet, c.Receive.Latency, c.DMARead, c.DMAWrite, c.ContextMiss} {
		errs.check(d >= 0, "NIC: the time %v is negative", d)
	}
	errs.check(c.Send.PicosecondsPerByte >= 0 && c.Receive.PicosecondsPerByte >= 0, "NIC: PicosecondsPerByte is negative")
	errs.check(c.Units >= 0 && c.Units <= 1<<10, "NIC: Units %d: must be between 0 and 1024", c.Units)
	errs.check(c.InlineBytes >= 0 && c.ContextEntries >= 0, "NIC: InlineBytes or ContextEntries is negative")
	return errors.Join(errs...)
}

// nicStage is one direction of a NIC. It needs no events: the time at which a packet leaves is
// known when it enters.
type nicStage struct {
	StageCosts
	units    []nicUnit
	dma      impair.Pacer // to or from memory
	dmaTime  time.Duration
	inline   int // length up to which a packet needs no DMA
	contexts contextCache
}

// nicUnit processes the packets of some flows in order.
type nicUnit struct{ freeAt, lastLeave mono.Time }

// newNICStages returns both directions of a NIC; nil if it takes no time.
func newNICStages(c *NICCosts) (send, receive *nicStage) {
	if *c == (NICCosts{}) {
		return nil, nil
	}
	stage := func(costs StageCosts, dmaTime time.Duration, inline int) *nicStage {
		return &nicStage{
			StageCosts: costs, units: make([]nicUnit, cmp.Or(c.Units, 1)), dma: impair.Pacer{RateBps: c.PCIeBps},
			dmaTime: dmaTime, inline: inline, contexts: contextCache{size: c.ContextEntries, miss: c.ContextMiss},
		}
	}
	return stage(c.Send, c.DMARead, c.InlineBytes), stage(c.Receive, c.DMAWrite, 0)
}

// pass returns when a packet of n bytes leaves the stage that it enters now.
func (s *nicStage) pass(now mono.Time, flow uint64, n int) mono.Time {
	u := &s.units[flow%uint64(len(s.units))]
	start := max(now, u.freeAt).Add(s.contexts.use(flow))
	u.freeAt = start.Add(s.Packet + time.Duration(n*s.PicosecondsPerByte/1000))
	leave := u.freeAt
	if n > s.inline {
		leave = max(leave, s.dma.Next(start, n)).Add(s.dmaTime)
	}
	u.lastLeave = max(u.lastLeave, leave.Add(s.Latency))
	return u.lastLeave
}

// contextCache has the flows whose state is on board, the least recently used last.
type contextCache struct {
	size  int // 0 for no limit
	miss  time.Duration
	flows map[uint64]*list.Element
	order list.List
}

// use makes a flow the most recently used one, and returns the time to fetch its state.
func (c *contextCache) use(flow uint64) time.Duration {
	if c.size == 0 {
		return 0
	}
	if e := c.flows[flow]; e != nil {
		c.order.MoveToFront(e)
		return 0
	}
	if c.flows == nil {
		c.flows = make(map[uint64]*list.Element, c.size)
	}
	if len(c.flows) == c.size {
		delete(c.flows, c.order.Remove(c.order.Back()).(uint64))
	}
	c.flows[flow] = c.order.PushFront(flow)
	return c.miss
}

// portNIC is the NIC of a port. Its stages are nil if it takes no time.
type portNIC struct {
	send, receive *nicStage
	sendingBytes  int  // of packets in the stage send
	sendBlocked   bool // Port.Send waits for room
}

// Handlers of a packet in a NIC.
type (
	leavesSender   packet // the packet leaves the NIC of its sender
	leavesReceiver packet // the packet leaves the NIC of its receiver
)

// processSend passes pk through the NIC's send stage, and then to the cable.
func (p *Port) processSend(pk *packet) {
	n := p.net
	if p.nic.send == nil {
		p.transmit(pk)
		return
	}
	p.nic.sendingBytes += pk.IPBytes()
	n.w.At(p.nic.send.pass(n.w.now, flowHash(pk.Src, pk.Dst), pk.IPBytes()), (*leavesSender)(pk), 0)
}

// HandleEvent implements Handler.
func (h *leavesSender) HandleEvent(now mono.Time, _ uint64) {
	pk, p := (*packet)(h), h.from
	p.nic.sendingBytes -= pk.IPBytes()
	if p.nic.sendBlocked {
		p.nic.sendBlocked = false
		p.writableTimer.Reset(now)
	}
	if p.closed {
		p.net.releasePacket(pk)
		return
	}
	p.transmit(pk)
}

// processReceive passes pk through the NIC's receive stage, and then to the receive queue.
func (n *Net) processReceive(pk *packet) {
	s := pk.to.nic.receive
	if s == nil {
		n.deliver(pk)
		return
	}
	n.w.At(s.pass(n.w.now, flowHash(pk.Src, pk.Dst), pk.IPBytes()), (*leavesReceiver)(pk), 0)
}

// HandleEvent implements Handler.
func (h *leavesReceiver) HandleEvent(mono.Time, uint64) { h.to.net.deliver((*packet)(h)) }
