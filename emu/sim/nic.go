package sim

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// NICCosts is the time that a NIC takes for packets, between its protocol engine and the cable. The
// zero value takes no time. The time of the host is [verbs.Costs].
type NICCosts struct {
	Send, Receive StageCosts
	// Units is the number of packets that each direction processes at a time; 0 means 1. Packets
	// of a flow pass the same unit in order. They have the same addresses, ports of UDP or TCP, and
	// destination queue pair, if the Net has a Dissector.
	Units int
	// PCIeBps is the rate between NIC and memory, which all units of a direction share; 0 means
	// unlimited. Both directions share it if HalfDuplexBus is set, as on PCI-X.
	PCIeBps       uint64
	HalfDuplexBus bool
	// InlineBytes is the longest packet whose payload the host has written to the NIC. The NIC
	// fetches longer ones from memory, which takes DMARead. It writes a received packet to memory
	// after DMAWrite.
	InlineBytes       int
	DMARead, DMAWrite time.Duration
	// ReceiveRequest is the time to fetch the receive work request of a message that needs one. The
	// Dissector of the Net must be a MemoryDissector.
	ReceiveRequest time.Duration
	// ContextEntries is the number of flows whose state the NIC has on board; 0 means all. It
	// fetches the state of another flow from memory, which takes ContextMiss.
	ContextEntries int
	ContextMiss    time.Duration
	// TranslationEntries is the number of pages of registered memory whose addresses the NIC has on
	// board; 0 means all. A request of a peer for another page takes TranslationMiss. The Dissector
	// of the Net must be a MemoryDissector.
	TranslationEntries int
	TranslationMiss    time.Duration
	// Stack is the CPU time of the host's kernel or protocol stack, above the NIC.
	Stack StackCosts
}

// StackCosts is the CPU time of a network stack for the packets of a port. Both directions share
// the Cores, of which 0 means 1, and process packets of a flow in order. A verb call of the host waits
// while all cores are busy.
type StackCosts struct {
	// UDP is the time for datagrams, and TCP that for segments of streams. The time for a segment
	// includes that for its acknowledgement, which is not simulated as a packet.
	UDP, TCP ProtocolCosts
	Cores    int
}

// ProtocolCosts is the CPU time for a packet in each direction.
type ProtocolCosts struct{ Send, Receive StageCosts }

// MemoryDissector is an impair.Dissector that knows which packets make a NIC read memory.
type MemoryDissector interface {
	impair.Dissector
	// IsReadResponse reports whether a packet has data that its sender reads from memory, however
	// short: that of an RDMA READ.
	IsReadResponse(payload []byte) bool
	// ConsumesReceive reports whether a packet takes a receive work request.
	ConsumesReceive(payload []byte) bool
	// RemoteAddr returns the address of the receiver's memory in a request; false if it has none.
	RemoteAddr(payload []byte) (addr uint64, ok bool)
}

// StageCosts is the time of a unit, or of a core, for one direction. Packet and PicosecondsPerByte occupy the
// unit; during Latency it processes other packets.
type StageCosts struct {
	Packet             time.Duration
	PicosecondsPerByte int
	Latency            time.Duration
}

// validate returns an error for values out of range.
func (c *NICCosts) validate() error {
	var errs problems
	for _, d := range []time.Duration{c.DMARead, c.DMAWrite, c.ReceiveRequest, c.ContextMiss, c.TranslationMiss} {
		errs.check(d >= 0, "NIC: the time %v is negative", d)
	}
	for _, s := range []StageCosts{c.Send, c.Receive, c.Stack.UDP.Send, c.Stack.UDP.Receive, c.Stack.TCP.Send, c.Stack.TCP.Receive} {
		errs.check(s.Packet >= 0 && s.Latency >= 0, "NIC: the time %v or %v is negative", s.Packet, s.Latency)
		errs.check(s.PicosecondsPerByte >= 0, "NIC: PicosecondsPerByte is negative")
	}
	for _, n := range []int{c.Units, c.Stack.Cores} {
		errs.check(n >= 0 && n <= 1<<10, "NIC: %d units or cores: must be between 0 and 1024", n)
	}
	errs.check(c.InlineBytes >= 0 && c.ContextEntries >= 0 && c.TranslationEntries >= 0,
		"NIC: InlineBytes, ContextEntries or TranslationEntries is negative")
	return errors.Join(errs...)
}

// nicStage is one direction of a NIC or of a stack. It needs no events: the time at which a packet
// leaves is known when it enters.
type nicStage struct {
	StageCosts
	units        *units
	dma          *impair.Pacer // to or from memory
	dmaTime      time.Duration
	fetchTime    time.Duration // of a receive work request
	inline       int           // length up to which a packet needs no DMA
	contexts     recentCache
	translations recentCache
}

// units process packets in parallel, those of a flow in order. New flows take the units in turn, as
// NICs do with the numbers of their queue pairs, and stay there. If the units are cores of a host, a
// flow without packets in them takes the one that is free first, as programs and interrupts do.
type units struct {
	all    []unit
	cores  bool
	ofFlow map[uint64]flowUnit // used if there are several
}

// flowUnit is the unit of a flow, and when the last packet of the flow leaves it.
type flowUnit struct {
	unit int
	till mono.Time
}

type unit struct{ freeAt, lastLeave mono.Time }

func newUnits(n int) *units {
	return &units{all: make([]unit, max(n, 1)), ofFlow: map[uint64]flowUnit{}}
}

// of returns the index of the unit that processes a packet of a flow which enters now.
func (u *units) of(now mono.Time, flow uint64) int {
	if len(u.all) == 1 {
		return 0
	}
	f, known := u.ofFlow[flow]
	switch {
	case u.cores && f.till <= now:
		free := u.freeAt()
		f.unit = slices.IndexFunc(u.all, func(v unit) bool { return v.freeAt == free })
	case !known:
		f.unit = len(u.ofFlow) % len(u.all)
	}
	u.ofFlow[flow] = f
	return f.unit
}

// freeAt returns when the first of the units is free.
func (u *units) freeAt() mono.Time {
	return slices.MinFunc(u.all, func(a, b unit) int { return cmp.Compare(a.freeAt, b.freeAt) }).freeAt
}

// nicPacket is a packet in a stage.
type nicPacket struct {
	flow  uint64
	bytes int
	// fromMemory: the sender has read the data from memory, even if it is short.
	fromMemory bool
	// consumesReceive: it takes a receive work request.
	consumesReceive bool
	// moreCopies is how often the receiver writes the data to memory after the first time.
	moreCopies int
	// addr is the address of the receiver's memory in a request with one.
	addr    uint64
	hasAddr bool
}

// pass sends a packet through a stage of the NIC, and returns when it leaves. The packet waits until the
// processing unit of its flow is idle. The unit fetches the state of the flow and the address translation if
// they are not in its caches, and then works while DMA moves the data. Packets of a unit leave in order.
func (s *nicStage) pass(now mono.Time, pk nicPacket) mono.Time {
	i := s.units.of(now, pk.flow)
	u := &s.units.all[i]
	start := max(now, u.freeAt).Add(s.contexts.use(pk.flow))
	if pk.hasAddr {
		start = start.Add(s.translations.use(pk.addr / translatedPage))
	}
	u.freeAt = start.Add(s.Packet + time.Duration(pk.bytes*s.PicosecondsPerByte/1000))
	leave := u.freeAt
	if s.dma != nil && (pk.bytes > s.inline || pk.fromMemory) {
		leave = max(leave, s.dma.Next(start, pk.bytes*(1+pk.moreCopies))).Add(s.dmaTime)
	}
	if pk.consumesReceive {
		leave = leave.Add(s.fetchTime)
	}
	u.lastLeave = max(u.lastLeave, leave.Add(s.Latency))
	if s.units.cores {
		s.units.ofFlow[pk.flow] = flowUnit{i, u.lastLeave}
	}
	return u.lastLeave
}

// translatedPage is the memory of one entry of the table of translations.
const translatedPage = 4 << 10

// recentCache has the most recently used keys, up to its size. It allocates only until it is full.
type recentCache struct {
	size    int // 0 for no limit
	miss    time.Duration
	index   map[uint64]int32
	entries []recentEntry // a ring by time of use; entry 0 is its head
}

type recentEntry struct {
	key        uint64
	prev, next int32
}

// use makes a key the most recently used one. It returns the time to fetch the key's entry from
// memory (miss), or 0 if the entry was cached.
func (c *recentCache) use(key uint64) time.Duration {
	if c.size == 0 {
		return 0
	}
	if c.index == nil {
		c.index, c.entries = make(map[uint64]int32), make([]recentEntry, 1)
	}
	i, known := c.index[key]
	switch {
	case known:
		c.unlink(i)
	case len(c.index) < c.size:
		i = int32(len(c.entries))
		c.entries = append(c.entries, recentEntry{})
	default:
		i = c.entries[0].prev // the least recently used one
		delete(c.index, c.entries[i].key)
		c.unlink(i)
	}
	e, first := &c.entries[i], c.entries[0].next
	*e = recentEntry{key: key, next: first}
	c.entries[first].prev, c.entries[0].next = i, i
	if known {
		return 0
	}
	c.index[key] = i
	return c.miss
}

// unlink removes entry i from the ring.
func (c *recentCache) unlink(i int32) {
	e := &c.entries[i]
	c.entries[e.prev].next, c.entries[e.next].prev = e.next, e.prev
}

// portNIC is the NIC of a port, and the stack above it. Its stages are nil if they take no time.
type portNIC struct {
	send, receive *nicStage
	// The stages of the stack, which share their cores.
	udpSend, udpReceive, tcpSend, tcpReceive *nicStage
	cores                                    *units
	dissector                                impair.Dissector // of the Net, or nil
	memory                                   MemoryDissector  // the same; nil if it is none

	sendingBytes int  // of packets in the stages of the sender
	sendBlocked  bool // Port.Send waits for room
}

// newPortNIC returns the stages of a NIC and of the network stack above it. There are none for the
// NIC or the stack if all its costs are 0: packets then pass it in no time.
func newPortNIC(c *NICCosts, d impair.Dissector) (p portNIC) {
	p.dissector = d
	nic := *c
	nic.Stack = StackCosts{}
	if nic != (NICCosts{}) {
		stage := func(costs StageCosts, dmaTime time.Duration, inline int) *nicStage {
			return &nicStage{
				StageCosts: costs, units: newUnits(c.Units), dma: &impair.Pacer{RateBps: c.PCIeBps},
				dmaTime: dmaTime, inline: inline, contexts: recentCache{size: c.ContextEntries, miss: c.ContextMiss},
				translations: recentCache{size: c.TranslationEntries, miss: c.TranslationMiss},
			}
		}
		p.send, p.receive = stage(c.Send, c.DMARead, c.InlineBytes), stage(c.Receive, c.DMAWrite, 0)
		p.receive.fetchTime = c.ReceiveRequest
		if c.HalfDuplexBus {
			p.receive.dma = p.send.dma
		}
		p.memory, _ = d.(MemoryDissector)
	}
	if s := &c.Stack; *s != (StackCosts{}) {
		p.cores = newUnits(s.Cores)
		p.cores.cores = true
		stage := func(costs StageCosts) *nicStage { return &nicStage{StageCosts: costs, units: p.cores} }
		p.udpSend, p.udpReceive = stage(s.UDP.Send), stage(s.UDP.Receive)
		p.tcpSend, p.tcpReceive = stage(s.TCP.Send), stage(s.TCP.Receive)
	}
	return p
}

// describe returns the properties of pk on which the time in a stage depends.
func (p *portNIC) describe(pk *packet) nicPacket {
	d := nicPacket{flow: flowHash(pk.Src, pk.Dst), bytes: pk.size}
	if p.dissector != nil {
		if qp, _, ok := p.dissector.Dissect(pk.Payload); ok { // queue pairs may have the same UDP ports
			const hashMultiplier = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
			d.flow += uint64(qp) * hashMultiplier
		}
	}
	if p.memory != nil {
		d.fromMemory, d.consumesReceive = p.memory.IsReadResponse(pk.Payload), p.memory.ConsumesReceive(pk.Payload)
		d.addr, d.hasAddr = p.memory.RemoteAddr(pk.Payload)
	}
	return d
}

// moreCopies returns how often the NIC writes a packet to memory after the first time: a multicast is written for
// each queue pair that has joined the group, but not for that of the sender.
func (p *Port) moreCopies(pk *packet) int {
	group := pk.Dst.Addr()
	if !group.IsMulticast() {
		return 0
	}
	n := p.joins[group] - 1
	if pk.from == p {
		n--
	}
	return max(0, n)
}

// Handlers of a packet in a NIC or stack.
type (
	leavesSendStack packet // the packet leaves the stack of its sender
	leavesSender    packet // the packet leaves the NIC of its sender
	leavesReceiver  packet // the packet leaves the NIC of its receiver
	leavesRecvStack packet // the packet leaves the stack of its receiver
)

// processSend passes pk through the stack and the NIC of its sender, and then to the cable.
func (p *Port) processSend(pk *packet) {
	n := p.net
	if p.nic.send == nil && p.nic.udpSend == nil {
		p.transmit(pk)
		return
	}
	p.nic.sendingBytes += pk.size
	if s := p.nic.udpSend; s != nil {
		n.w.At(s.pass(n.w.now, p.nic.describe(pk)), (*leavesSendStack)(pk), 0)
		return
	}
	(*leavesSendStack)(pk).HandleEvent(n.w.now, 0)
}

// HandleEvent implements Handler. The packet leaves the sender's network stack, and passes its NIC.
func (h *leavesSendStack) HandleEvent(now mono.Time, _ uint64) {
	pk, p := (*packet)(h), h.from
	if s := p.nic.send; s != nil {
		p.net.w.At(s.pass(now, p.nic.describe(pk)), (*leavesSender)(pk), 0)
		return
	}
	(*leavesSender)(pk).HandleEvent(now, 0)
}

// HandleEvent implements Handler. The packet leaves the sender's NIC, which makes room in the
// transmit queue, and enters the cable.
func (h *leavesSender) HandleEvent(now mono.Time, _ uint64) {
	pk, p := (*packet)(h), h.from
	p.nic.sendingBytes -= pk.size
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

// processReceive passes pk through the NIC and the stack of its receiver, and then to the receive
// queue.
func (n *Net) processReceive(pk *packet) {
	switch s := &pk.to.nic; {
	case s.receive != nil:
		d := s.describe(pk)
		d.moreCopies = pk.to.moreCopies(pk)
		n.w.At(s.receive.pass(n.w.now, d), (*leavesReceiver)(pk), 0)
	case s.udpReceive != nil:
		(*leavesReceiver)(pk).HandleEvent(n.w.now, 0)
	default:
		n.deliver(pk)
	}
}

// HandleEvent implements Handler. The packet leaves the receiver's NIC, and passes its network
// stack, if that takes time, before it is delivered.
func (h *leavesReceiver) HandleEvent(now mono.Time, _ uint64) {
	pk, n := (*packet)(h), h.to.net
	if s := pk.to.nic.udpReceive; s != nil {
		n.w.At(s.pass(now, pk.to.nic.describe(pk)), (*leavesRecvStack)(pk), 0)
		return
	}
	n.deliver(pk)
}

// HandleEvent implements Handler.
func (h *leavesRecvStack) HandleEvent(mono.Time, uint64) { h.to.net.deliver((*packet)(h)) }

// waitForCPU makes program p sleep while the network stack keeps all cores busy.
func (n *portNIC) waitForCPU(p *Proc) {
	if n.cores == nil {
		return
	}
	if free := n.cores.freeAt(); free > p.w.now {
		p.Sleep(free.Sub(p.w.now))
	}
}
