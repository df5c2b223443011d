package shmlink

import (
	"net/netip"
	"sync/atomic"
	"unsafe"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// A ring is a sequence of records, whose positions are counted from 0 and never wrap. A record is a
// header of 64 bytes and the payload, padded to a multiple of 64 bytes:
//
//	 0  size of the record; 0 if it is not complete; endOfLap if the rest of the lap is unused
//	 4  length of the payload
//	 8  source address (16), 24 destination address (16)
//	40  source port (2), 42 destination port (2)
//	44  IPv4 identification, 48 flow label, 52 tag (4 each)
//	56  traffic class, hop limit, variants, flags (1 each)
//
// The producer writes the size last, and before that 0 as the size of the record that follows. So a
// consumer that waits reads the cache line of the record itself, and no position of the producer.
const (
	recordAlign = 64
	headerBytes = 64
	endOfLap    = 1<<32 - 1

	atLength, atSrc, atDst, atSrcPort, atDstPort, atIPID, atFlow, atTag = 4, 8, 24, 40, 42, 44, 48, 52
	atTClass, atHopLimit, atVariants, atFlags                           = 56, 57, 58, 59
)

// addrsBytes is the length of the addresses and ports in a record.
const addrsBytes = atIPID - atSrc

// addrCache holds the addresses of the last record, as they are in the record and decoded. Most
// records have the addresses of the one before.
type addrCache struct {
	raw      [addrsBytes]byte
	flags    byte
	src, dst netip.AddrPort
}

// same reports whether a record has these addresses.
func (a *addrCache) same(record []byte) bool {
	b := record[atSrc:atIPID]
	return order.Uint64(b) == order.Uint64(a.raw[:]) && order.Uint64(b[8:]) == order.Uint64(a.raw[8:]) &&
		order.Uint64(b[16:]) == order.Uint64(a.raw[16:]) && order.Uint64(b[24:]) == order.Uint64(a.raw[24:]) &&
		order.Uint32(b[32:]) == order.Uint32(a.raw[32:]) && record[atFlags] == a.flags
}

// decode sets the addresses to those of a record with flags.
func (a *addrCache) decode(raw [addrsBytes]byte, flags byte) {
	a.raw, a.flags = raw, flags
	a.src = addrPort(a.raw[:], a.raw[atSrcPort-atSrc:], flags&srcIs4 != 0)
	a.dst = addrPort(a.raw[atDst-atSrc:], a.raw[atDstPort-atSrc:], flags&dstIs4 != 0)
}

// encode sets the addresses to those of a datagram.
func (a *addrCache) encode(d *link.Datagram) {
	a.src, a.dst, a.flags = d.Src, d.Dst, 0
	src, dst := d.Src.Addr(), d.Dst.Addr()
	if src.Is4() {
		a.flags |= srcIs4
	}
	if dst.Is4() {
		a.flags |= dstIs4
	}
	*(*[16]byte)(a.raw[:]) = src.As16()
	*(*[16]byte)(a.raw[atDst-atSrc:]) = dst.As16()
	order.PutUint16(a.raw[atSrcPort-atSrc:], d.Src.Port())
	order.PutUint16(a.raw[atDstPort-atSrc:], d.Dst.Port())
}

// Flags of a record.
const (
	srcIs4 = 1 << iota
	dstIs4
)

// ring is a ring in shared memory.
type ring struct {
	consumed *atomic.Uint64 // position up to which the consumer has taken records
	produced *atomic.Uint64 // position up to which the producer has written
	data     []byte
	mask     uint64
}

// size returns the size field of the record at a position.
func (r *ring) size(at uint64) *uint32 {
	return (*uint32)(unsafe.Pointer(&r.data[at&r.mask&^(recordAlign-1)]))
}

// valid reports whether two positions could be those of a consumer and a producer.
func (r *ring) valid(consumed, produced uint64) bool {
	return produced-consumed <= uint64(len(r.data)) && (consumed|produced)%recordAlign == 0
}

// recordBytes returns the size of a record with n bytes of payload.
func recordBytes(n int) uint64 { return uint64(headerBytes+n+recordAlign-1) &^ (recordAlign - 1) }

// producer writes records. They are visible to the consumer after publish.
type producer struct {
	ring
	next        uint64 // position of the next record
	unpublished uint64 // position of the first record that is not published; next if there is none
	firstSize   uint32 // size of that record
	consumed    uint64 // last position read from the consumer
	addrs       addrCache
	fullSince   mono.Time
	dropping    bool // the consumer took nothing for PauseLimit
}

// newProducer returns the producer of a ring. It continues after the records that another process
// wrote before, or starts where the consumer is if the position in memory is invalid.
func newProducer(r ring) producer {
	consumed, produced := r.consumed.Load(), r.produced.Load()
	if !r.valid(consumed, produced) {
		produced = consumed &^ (recordAlign - 1)
	}
	atomic.StoreUint32(r.size(produced), 0)
	r.produced.Store(produced)
	return producer{ring: r, next: produced, unpublished: produced, consumed: consumed}
}

// place returns the position of a record of the given size, which does not cross the end of the
// ring, and whether there is room for it and for the size field of the next. If there seems to be
// none, it reads the consumer's position again; a consumer that has moved is no longer paused for.
func (p *producer) place(size uint64) (at uint64, ok bool) {
	at = p.next
	if left := uint64(len(p.data)) - at&p.mask; left < size {
		at += left
	}
	end := at + size + recordAlign
	if end-p.consumed <= uint64(len(p.data)) {
		return at, true
	}
	consumed := p.ring.consumed.Load()
	if consumed != p.consumed && p.valid(consumed, p.next) {
		p.consumed, p.fullSince, p.dropping = consumed, 0, false
	}
	return at, end-p.consumed <= uint64(len(p.data))
}

// append writes a record for d, of size bytes, at the position that place returned for this size. If
// place has skipped the end of a lap, append marks it as unused.
func (p *producer) append(at, size uint64, d *link.Datagram) {
	if at != p.next {
		p.complete(p.next, endOfLap, at)
	}
	b := p.data[at&p.mask : at&p.mask+size]
	if n := len(d.Payload); n > 0 && &d.Payload[0] != &b[headerBytes] { // else it was built in place
		copy(b[headerBytes:], d.Payload)
	}
	if d.Src != p.addrs.src || d.Dst != p.addrs.dst {
		p.addrs.encode(d)
	}
	order.PutUint32(b[atLength:], uint32(len(d.Payload)))
	*(*[addrsBytes]byte)(b[atSrc:]) = p.addrs.raw
	order.PutUint32(b[atIPID:], d.IPID)
	order.PutUint32(b[atFlow:], d.FlowLabel)
	order.PutUint32(b[atTag:], d.Tag)
	b[atTClass], b[atHopLimit], b[atVariants], b[atFlags] = d.TClass, d.HopLimit, byte(d.Variants), p.addrs.flags
	p.complete(at, uint32(size), at+size)
}

// room returns memory for the payloads of the next records: of up to n, with payloads of up to
// maxLen bytes. If not even one fits before the end of the lap, they are in the next lap.
func (p *producer) room(n, maxLen int) []byte {
	record := recordBytes(maxLen)
	if left := uint64(len(p.data)) - p.next&p.mask; left < record {
		at, ok := p.place(record)
		if !ok {
			return nil
		}
		p.complete(p.next, endOfLap, at)
	}
	start := p.next & p.mask
	size := min(uint64(n)*record, uint64(len(p.data))-start)
	if _, ok := p.place(size); !ok {
		used := p.next - p.consumed + recordAlign // place has just read the position of the consumer
		if used+record > uint64(len(p.data)) {
			return nil
		}
		size = min(size, (uint64(len(p.data))-used)&^(recordAlign-1))
	}
	return p.data[start+headerBytes : start+size : start+size]
}

// complete sets the size of the record at a position, after a size of 0 at the next position. The
// size of the first unpublished record is set by publish.
func (p *producer) complete(at uint64, size uint32, next uint64) {
	*p.size(next) = 0
	if at == p.unpublished {
		p.firstSize = size
	} else {
		*p.size(at) = size
	}
	p.next = next
}

// publish makes all records visible to the consumer. It sets the size of the first one last: while
// that is 0, the consumer does not read further.
func (p *producer) publish() {
	if p.unpublished == p.next {
		return
	}
	p.produced.Store(p.next)
	atomic.StoreUint32(p.size(p.unpublished), p.firstSize)
	p.unpublished = p.next
}

// paused reports whether the producer of a full ring must wait: until PauseLimit has passed since
// it was first full, if its consumer takes nothing.
func (p *producer) paused(now mono.Time) bool {
	switch {
	case p.dropping:
	case p.fullSince == 0:
		p.fullSince = now
	case now.Sub(p.fullSince) > PauseLimit:
		p.dropping = true
	}
	return !p.dropping
}

// consumer takes records.
type consumer struct {
	ring
	next  uint64 // position of the next record
	addrs addrCache
	taken uint64 // next after the last release or hold; accessed atomically
	held  bool   // the memory of records that were taken is still in use
}

// newConsumer returns the consumer of a ring. It skips the records that are in it.
func newConsumer(r ring) consumer {
	c := consumer{ring: r, next: r.consumed.Load() &^ (recordAlign - 1)}
	c.taken = c.next
	c.addrs.decode([addrsBytes]byte{}, 0)
	if r.produced.Load() != c.next {
		c.skip()
	}
	return c
}

// skip recovers from an invalid record: it discards all records that the producer has written. If the
// position of the producer shows none, or is itself invalid, it clears the size field that announced
// the record, so that the consumer does not read it again.
func (c *consumer) skip() {
	if produced := c.produced.Load(); produced != c.next && c.valid(c.next, produced) {
		c.next = produced
	} else {
		atomic.StoreUint32(c.size(c.next), 0)
	}
	c.release()
}

// ready reports whether there is a record to take.
func (c *consumer) ready() bool { return atomic.LoadUint32(c.size(c.next)) != 0 }

// empty reports whether there is no record. Any goroutine may call it.
func (c *consumer) empty() bool {
	return atomic.LoadUint32(c.size(atomic.LoadUint64(&c.taken))) == 0
}

// take copies the next record into d, and its payload into buf, which has room for the largest. A
// payload of inPlace bytes or more stays in the ring instead, until release is called. If ok is
// false, there is no record, or garbage is true and it is invalid.
func (c *consumer) take(d *link.Datagram, buf []byte, inPlace int) (ok, garbage bool) {
	size := uint64(atomic.LoadUint32(c.size(c.next)))
	if size == 0 {
		return false, false
	}
	at := c.next & c.mask
	if size == endOfLap && at != 0 {
		c.next += uint64(len(c.data)) - at
		at = 0
		if size = uint64(atomic.LoadUint32(c.size(c.next))); size == 0 {
			return false, false
		}
	}
	if size < headerBytes || size%recordAlign != 0 || at+size > uint64(len(c.data)) {
		return false, true
	}
	b := c.data[at : at+size]
	n := int(order.Uint32(b[atLength:])) // read once: the producer may change it meanwhile
	if recordBytes(n) != size || n > len(buf) {
		return false, true
	}
	if n >= inPlace {
		d.Payload = b[headerBytes : headerBytes+n : headerBytes+n]
		c.held = true
	} else {
		d.Payload = buf[:n:n]
		copy(d.Payload, b[headerBytes:])
	}
	if a := &c.addrs; !a.same(b) {
		a.decode([addrsBytes]byte(b[atSrc:]), b[atFlags])
	}
	d.Src, d.Dst = c.addrs.src, c.addrs.dst
	d.TClass, d.HopLimit, d.Variants = b[atTClass], b[atHopLimit], link.HeaderVariants(b[atVariants])
	d.IPID, d.FlowLabel, d.Tag = order.Uint32(b[atIPID:]), order.Uint32(b[atFlow:]), order.Uint32(b[atTag:])
	c.next += size
	return true, false
}

// release lets the producer use the memory of the records that were taken.
func (c *consumer) release() {
	c.hold()
	if c.consumed.Load() != c.next {
		c.consumed.Store(c.next)
	}
	c.held = false
}

// hold makes empty skip the records that were taken. Their memory stays in use until release.
func (c *consumer) hold() {
	if c.taken != c.next {
		atomic.StoreUint64(&c.taken, c.next)
	}
}

// addrPort decodes an address and a port.
func addrPort(addr, port []byte, is4 bool) netip.AddrPort {
	a := netip.AddrFrom16([16]byte(addr))
	if is4 {
		a = a.Unmap()
	}
	return netip.AddrPortFrom(a, order.Uint16(port))
}
