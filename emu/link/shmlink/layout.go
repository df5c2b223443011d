package shmlink

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"sync/atomic"
	"unsafe"
)

// The memory of a cable, in the byte order of the machine:
//
//	page 0       magic (8 bytes), ports, switch (0 or 1), MTU (4 each), bytes of a ring (8)
//	from page 1  for each port, portBytes: its state, and from portAddrs on its addresses
//	then         for each ring, controlBytes: positions of its consumer and its producer
//	then         for each ring, its data
//
// The ring from port i to port j of n has the number i*n+j. State and positions that different
// processes write have separate pairs of cache lines, since processors prefetch pairs.
const (
	magic        = 0x316d_6873_6261_6600 // "fabshm1"
	pageBytes    = 4096
	linePair     = 128
	portBytes    = 3 * linePair
	portAddrs    = linePair
	controlBytes = 2 * linePair
	addrBytes    = 20 // address (16), 1 for IPv6 or 2 for IPv4 (4)

	atPorts, atSwitch, atMTU, atRing = 8, 12, 16, 24
)

// Families of addresses in the memory.
const (
	noAddr = iota
	isIPv6
	isIPv4
)

var order = binary.NativeEndian

// layout is the geometry of a cable's memory.
type layout struct {
	ports     int
	hasSwitch bool
	mtu       int
	ringBytes int
}

// newLayout returns the layout for a configuration, with defaults, or an error if it is invalid.
func newLayout(c *Config) (l layout, err error) {
	l = layout{ports: len(c.Ports), hasSwitch: c.Switch, mtu: c.MTU, ringBytes: c.RingBytes}
	if c.Switch {
		l.ports++
	}
	if l.mtu == 0 {
		l.mtu = defaultMTU
	}
	if l.ringBytes == 0 && l.ports > 0 {
		l.ringBytes = min(max(memoryBytes/(l.ports*l.ports), minRing), maxRing)
		l.ringBytes = 1 << (bits.Len(uint(l.ringBytes)) - 1)
	}
	for i, addrs := range c.Ports {
		if len(addrs) < 1 || len(addrs) > MaxAddrs {
			return l, fmt.Errorf("port %d has %d addresses: 1 to %d are possible", i, len(addrs), MaxAddrs)
		}
	}
	return l, l.check()
}

// check returns an error if the layout is impossible.
func (l *layout) check() error {
	switch {
	case l.ports < 1 || l.ports > MaxPorts:
		return fmt.Errorf("%d ports: a cable in shared memory has 1 to %d", l.ports, MaxPorts)
	case l.mtu < minMTU || l.mtu > maxMTU:
		return fmt.Errorf("MTU %d: it must be %d to %d", l.mtu, minMTU, maxMTU)
	case l.ringBytes < minRing || bits.OnesCount(uint(l.ringBytes)) != 1:
		return fmt.Errorf("rings of %d bytes: give a power of two, at least %d", l.ringBytes, minRing)
	}
	return nil
}

// readLayout reads the layout from the first page of a cable's memory of size bytes.
func readLayout(page []byte, size int64) (l layout, err error) {
	if len(page) < pageBytes || order.Uint64(page) != magic {
		return l, errNotCable
	}
	l = layout{
		ports: int(order.Uint32(page[atPorts:])), hasSwitch: order.Uint32(page[atSwitch:]) != 0,
		mtu: int(order.Uint32(page[atMTU:])), ringBytes: int(order.Uint64(page[atRing:])),
	}
	if err := l.check(); err != nil {
		return l, fmt.Errorf("%w: %w", errNotCable, err)
	}
	if int64(l.size()) != size {
		return l, fmt.Errorf("%w: it has %d bytes, not %d", errNotCable, size, l.size())
	}
	return l, nil
}

// write writes the first page and the addresses of the ports.
func (l *layout) write(mem []byte, ports [][]netip.Addr) {
	order.PutUint64(mem, magic)
	order.PutUint32(mem[atPorts:], uint32(l.ports))
	if l.hasSwitch {
		order.PutUint32(mem[atSwitch:], 1)
	}
	order.PutUint32(mem[atMTU:], uint32(l.mtu))
	order.PutUint64(mem[atRing:], uint64(l.ringBytes))
	for i, addrs := range ports {
		for k, a := range addrs {
			entry := mem[l.portAt(i)+portAddrs+k*addrBytes:]
			a = a.Unmap()
			bytes, family := a.As16(), uint32(isIPv6)
			if a.Is4() {
				family = isIPv4
			}
			copy(entry, bytes[:])
			order.PutUint32(entry[16:], family)
		}
	}
}

// readAddrs returns the addresses of a port.
func (l *layout) readAddrs(mem []byte, port int) (addrs []netip.Addr) {
	for k := range MaxAddrs {
		entry := mem[l.portAt(port)+portAddrs+k*addrBytes:]
		a := netip.AddrFrom16([16]byte(entry))
		switch order.Uint32(entry[16:]) {
		case isIPv6:
			addrs = append(addrs, a)
		case isIPv4:
			addrs = append(addrs, a.Unmap())
		}
	}
	return addrs
}

func (l *layout) portAt(i int) int { return pageBytes + i*portBytes }

// controlsAt and dataAt are the offsets of the positions and the data of ring 0.
func (l *layout) controlsAt() int { return roundUp(l.portAt(l.ports), pageBytes) }

func (l *layout) dataAt() int {
	return roundUp(l.controlsAt()+l.ports*l.ports*controlBytes, pageBytes)
}

func (l *layout) size() int { return l.dataAt() + l.ports*l.ports*l.ringBytes }

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// state returns the word on which the consumer of a port sleeps.
func (l *layout) state(mem []byte, port int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&mem[l.portAt(port)]))
}

// ring returns the ring from port i to port j.
func (l *layout) ring(mem []byte, i, j int) ring {
	n := i*l.ports + j
	control := l.controlsAt() + n*controlBytes
	data := l.dataAt() + n*l.ringBytes
	return ring{
		consumed: (*atomic.Uint64)(unsafe.Pointer(&mem[control])),
		produced: (*atomic.Uint64)(unsafe.Pointer(&mem[control+linePair])),
		data:     mem[data : data+l.ringBytes : data+l.ringBytes],
		mask:     uint64(l.ringBytes - 1),
	}
}
